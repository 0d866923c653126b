"""The cost of a JSON Schema: bounded for every input before any is checked, however the schema multiplies work."""

import itertools
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.core.jobs.inputs import check_input, read_schema
from gnomon.core.jobs.pattern_cost import pattern_cost
from gnomon.core.jobs.schema_cost import input_size, schema_cost
from gnomon.errors import FieldError
from support.counted_calls import counted_calls
from support.processor_time import is_done_within

SELF = {"$ref": "#"}


def doubled(levels: int) -> dict[str, Any]:
    """A schema in which two branches reach the next level, at each level."""
    levels_of = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(levels)}
    return {"$defs": {**levels_of, f"a{levels}": {"type": "object"}}, "$ref": "#/$defs/a0"}


def unevaluated(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"unevaluatedProperties": False}
    for _ in range(levels):
        schema = {"allOf": [schema], "unevaluatedProperties": False}
    return schema


def unevaluated_by_reference(count: int, schema: dict[str, Any]) -> dict[str, Any]:
    """A schema whose many properties all refer to another one, and refuse what that has not evaluated."""
    defs = {**schema.pop("$defs", {}), "a": schema}
    one = {"$ref": "#/$defs/a", "unevaluatedProperties": False}
    return {"$defs": defs, "properties": {f"p{n}": one for n in range(count)}}


REFUSED: dict[str, dict[str, Any]] = {
    "27 levels of two references": doubled(27),
    "300 levels of two references": doubled(300),
    "recursion under anyOf": {"properties": {"x": {"anyOf": [SELF, SELF]}}, "required": ["q"]},
    "recursion under oneOf": {"items": {"oneOf": [SELF, SELF]}},
    "recursion under not and if": {"additionalProperties": {"not": SELF, "if": SELF}},
    "recursion by name and by pattern": {"properties": {"x": SELF}, "patternProperties": {".*": SELF}},
    "recursion of items and contains": {"items": SELF, "contains": SELF},
    "recursion by anchors": {"$dynamicAnchor": "a", "items": {"allOf": [{"$dynamicRef": "#a"}, {"$ref": "#a"}]}},
    "mutual recursion": {
        "$defs": {"a": {"items": {"$ref": "#/$defs/b"}}, "b": {"items": {"$ref": "#/$defs/a"}, "contains": SELF}},
        "items": {"$ref": "#/$defs/a"},
        "contains": {"$ref": "#/$defs/b"},
    },
    "itself": SELF,
    "itself by another": {"$defs": {"a": {"anyOf": [SELF]}}, "$ref": "#/$defs/a"},
    "properties that nothing has evaluated": unevaluated(12),
    "many that ask what many have evaluated": unevaluated_by_reference(400, {"allOf": [{}] * 400}),
    "many that ask what references have evaluated": unevaluated_by_reference(100, doubled(8)),
    "many subschemas": {"properties": {f"p{n}": {} for n in range(1001)}},
    "many values": {"enum": list(range(10_001))},
    "an expensive pattern that nothing refers to": {"$defs": {"a": {"pattern": r"\p{L}{100}"}}},
    "verbose patterns": {"pattern": "(?x)a {50}"},
    "escapes of classes": {"pattern": r"\S" * 1400},
    "escapes of classes in a long pattern": {"pattern": r"\d" * 100 + "[" + "a" * 50_000 + "]"},
    "escapes of classes in names": {"patternProperties": {r"\w" * 4800: {}}},
    "escapes of classes in many patterns": {"allOf": [{"pattern": r"\s" * 50 + str(n)} for n in range(20)]},
    "control characters": {"pattern": r"[\cA\cB]" * 2000},
    "escapes in brackets": {"pattern": "[" + r"\S" * 20_000 + "]"},
    "many classes without regard to case": {"pattern": r"(?i)[\x00-\u{10ffff}]" * 20},
    "negated classes in brackets without regard to case": {"pattern": r"(?i:[a\S])" * 500},
    "a repetition without an end": {"pattern": r"\S" * 400 + "a{" + "0" * 20_000},
    "brackets without an end": {"pattern": r"\S" * 400 + "[" * 20_000},
    "values of draft 4 to distinguish": {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "$defs": {"a": {"enum": [2**62 + n for n in range(2000)]}},
    },
    "many patterns": {"allOf": [{"pattern": f"^x{n}[a-z]+$"} for n in range(200)]},
    "a repeated pattern": {"pattern": "(?:(?:a{50}){50}){50}"},
    "a repeated class": {"pattern": r"\p{L}{100}"},
    "another document": {"$ref": "https://example.com/schema.json"},
    "a reference to nothing": {"$ref": "#/$defs/none"},
    "an anchor twice": {"$defs": {"a": {"$anchor": "x"}, "b": {"$anchor": "x", "items": SELF}}, "$ref": "#x"},
    "an inner id of draft 4": {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "definitions": {"a": {}, "r": {"id": "http://e/r", "definitions": doubled(40)["$defs"]}},
        "allOf": [{"$ref": "#/definitions/r"}],
    },
    "a reference that is no text": {"$ref": "#/$defs/%FF"},
    "an inner id": {"properties": {"a": {"$id": "https://example.com/a", "items": SELF}}},
}


#: Schemas of less than 2 KiB are read on the event loop, and larger ones in a thread that the loop waits for at times.
RECURSIVE: dict[str, dict[str, Any]] = {
    "lists in objects": {"properties": {f"k{n}": {"items": SELF} for n in range(200)}},
    "lists in lists in objects": {"properties": {f"k{n}": {"items": {"items": SELF}} for n in range(120)}},
    "a growing sum": {"properties": {f"k{n}": {"allOf": [SELF]} for n in range(150)}, "items": {"allOf": [SELF]}},
}


@pytest.mark.req("H-22")
@pytest.mark.parametrize("schema", RECURSIVE.values(), ids=RECURSIVE)
def test_the_cost_of_a_recursive_schema_is_found_in_a_moment(schema: dict[str, Any]) -> None:
    def add_up() -> None:
        with suppress(FieldError):
            schema_cost("input_schema", schema)

    # Its sums alternate, so that they never stay the same: that took 40 ms, and was refused.
    assert counted_calls(add_up) < 100_000


def test_sums_that_alternate_end_with_the_largest() -> None:
    schema = {"properties": {"list": {"items": SELF, "enum": [[n] for n in range(100)]}}}

    assert schema_cost("input_schema", schema).checks[-1] == max(schema_cost("input_schema", schema).checks)
    assert len(schema_cost("input_schema", schema).checks) < 8


@pytest.mark.parametrize("schema", REFUSED.values(), ids=REFUSED)
def test_a_schema_without_a_small_bound_is_refused(schema: dict[str, Any]) -> None:
    def read() -> None:
        with pytest.raises(FieldError) as refused:
            read_schema("input_schema", schema)
        assert refused.value.field == "input_schema"

    assert is_done_within(0.2, read)


LEAF = {"type": ["string", "number", "boolean", "null"]}
ACCEPTED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "ten levels of two references": (doubled(10), {}),
    "a tree": (
        {"properties": {"name": {"type": "string"}, "children": {"items": SELF}}, "required": ["name"]},
        {"name": "a", "children": [{"name": "b"}, {"name": "c", "children": []}]},
    ),
    "two children by name": ({"properties": {"left": SELF, "right": SELF}}, {"left": {"right": {}}}),
    "any JSON": (
        {
            "$defs": {
                "any": {
                    "anyOf": [
                        LEAF,
                        {"type": "array", "items": {"$ref": "#/$defs/any"}},
                        {"type": "object", "additionalProperties": {"$ref": "#/$defs/any"}},
                    ]
                }
            },
            "additionalProperties": {"$ref": "#/$defs/any"},
        },
        {"a": [1, {"b": [None, "c"]}] * 500},
    ),
    "rows": (
        {
            "properties": {
                "rows": {
                    "items": {
                        "required": ["id", "amount"],
                        "properties": {
                            "id": {"pattern": "^[A-Z]{2}[0-9]{4}$"},
                            "amount": {"type": "number", "multipleOf": 0.01},
                        },
                        "additionalProperties": False,
                    }
                }
            }
        },
        {"rows": [{"id": "AB1234", "amount": n / 100} for n in range(1500)]},
    ),
    "an id of its own": (
        {"$id": "https://example.com/a", "$defs": {"n": {"minimum": 0}}, "$ref": "https://example.com/a#/$defs/n"},
        {},
    ),
    "a name in another script": ({"$defs": {"ä": {"type": "object"}, "Ã¤": False}, "$ref": "#/$defs/%C3%A4"}, {}),
    "a property called id": ({"properties": {"id": {"type": "string"}}, "examples": [{"id": "a"}]}, {"id": "a"}),
    "unique texts, objects and lists": (
        {"properties": {"x": {"uniqueItems": True, "items": {"properties": {"tags": {"uniqueItems": True}}}}}},
        {
            "x": [
                *(f"id-{n}" for n in range(2000)),
                *({"id": n} for n in range(500)),
                *({"tags": [n]} for n in range(300)),
            ]
        },
    ),
    "texts and numbers to choose from": (
        {"properties": {"x": {"items": {"enum": [None, "low", "high", 1, 2, 3, 0.5]}}}},
        {"x": [0.5, 1, "low", None] * 200},
    ),
    "a pattern with a flag": ({"properties": {"x": {"pattern": "(?i)^[a-z]{1,20}(?:-[0-9]+)?$"}}}, {"x": "Order-17"}),
    "closed objects that share parts": (
        unevaluated_by_reference(50, {"allOf": [{"properties": {f"x{n}": {}}} for n in range(20)]}),
        {"p1": {"x2": 1}},
    ),
    "an escaped name": ({"$defs": {"a/b c": {"type": "object"}}, "$ref": "#/$defs/a~1b%20c"}, {}),
}


@pytest.mark.parametrize(("schema", "value"), ACCEPTED.values(), ids=ACCEPTED)
def test_a_schema_as_people_write_it_is_accepted(schema: dict[str, Any], value: dict[str, Any]) -> None:
    check_input("input", value, read_schema("input_schema", schema))


NUMBERS = list(range(12_000))


def nested(size: int) -> Iterator[list[Any]]:
    """All lists of lists that have so many lists inside, which a table by leaves cannot distinguish."""
    if not size:
        yield []
    for first in range(size):
        for head in nested(first):
            for tail in nested(size - 1 - first):
                yield [head, *tail]


NESTED = [one for size in range(9) for one in nested(size)]
EXPENSIVE: dict[str, tuple[dict[str, Any], object]] = {
    "branches for every item": ({"items": {"allOf": [{"type": "integer"}] * 300}}, NUMBERS),
    "branches without schemas": ({"items": {"allOf": [True] * 5000}}, NUMBERS),
    "a pattern for a long text": ({"pattern": "(?:a|b)*a(?:a|b){200}c"}, "ab" * 30_000),
    "patterns for every name": (
        {"patternProperties": {f"^a{n}": {} for n in range(100)}},
        {f"k{n}": 1 for n in NUMBERS[:5000]},
    ),
    "large values to compare": ({"items": {"enum": [[n] * 4 for n in range(300)]}}, [[n] * 4 for n in range(4000)]),
    "fractions": ({"items": {"multipleOf": 1e-300}}, [n * 1.1e200 for n in range(2000)]),
    "a list of numbers and texts": ({"items": {"enum": ["a", *NUMBERS[:300]]}}, [n + 0.5 for n in NUMBERS[:6000]]),
    "numbers in lists of values": (
        {"items": {"enum": [["a"] * 8 + [n + 0.5] for n in range(100)]}},
        [["a"] * 8 + [-n - 0.5] for n in range(1000)],
    ),
    "content to decode": ({"allOf": [{"contentMediaType": "application/json"}] * 300}, "[" + "1," * 20_000 + "1]"),
    "very large bounds": ({"items": {"allOf": [{"minimum": -1e300, "maximum": 1e300}] * 5}}, NUMBERS[:6000]),
    "different items whose order of leaves is the same": ({"uniqueItems": True}, NESTED),
    "different items that are one float": ({"uniqueItems": True}, [2**62 + n for n in range(2000)]),
    "short lists of very small numbers": ({"items": {"uniqueItems": True}}, [[n * 1.1e-300 for n in range(15)]] * 200),
    "a repetition with white space": ({"pattern": "^[ab]*a[ab]{ 3000 }$"}, "ab" * 10_000),
    "a repetition with zeros": ({"pattern": "^[ab]*a[ab]{0000003000}$"}, "ab" * 10_000),
    "a repetition of a repetition": ({"pattern": "^[ab]*a[ab]{60}{60}$"}, "ab" * 10_000),
    "a repetition after a flag": ({"pattern": "(?i)^[ab]*a[ab]{3000}$"}, "ab" * 10_000),
    "a repetition in a group with flags": ({"pattern": "^(?i:[ab]*a[ab]{3000})$"}, "ab" * 10_000),
}


@pytest.mark.parametrize(("schema", "value"), EXPENSIVE.values(), ids=EXPENSIVE)
def test_an_input_that_takes_too_long_is_refused_unseen(schema: dict[str, Any], value: object) -> None:
    kept = read_schema("input_schema", {"properties": {"x": schema}})

    with pytest.raises(FieldError, match="too many checks"):
        check_input("input", {"x": value}, kept)


def test_a_refusal_names_the_first_wrong_value_without_collecting_all_of_them() -> None:
    def check() -> None:
        with pytest.raises(FieldError) as refused:
            check_input("input", {"x": NUMBERS}, {"properties": {"x": {"items": {"type": "string"}}}})
        assert refused.value.field == "input.x[0]"

    assert is_done_within(0.1, check)


def test_a_refusal_by_many_branches_says_only_that() -> None:
    schema = {"properties": {"x": {"anyOf": [{"items": {"type": "string"}}]}}}

    def check() -> None:
        with pytest.raises(FieldError, match="too many branches"):
            check_input("input", {"x": NUMBERS}, schema)

    assert is_done_within(0.1, check)


def test_the_states_of_a_pattern_follow_its_repetitions() -> None:
    assert pattern_cost("^[a-z]{3}-(?:[0-9]{2}x){4}$").states == 1 + 3 + 1 + 4 * 4 + 1
    assert pattern_cost("a{1000}").states == 1000
    assert pattern_cost("a{ 0001000 , 7 }").states == 1000
    assert pattern_cost("(a{10}){10}").states >= 100
    assert pattern_cost("[)(]+").states == 1
    assert pattern_cost("(?i)a{1000}").states == 1 + 1000
    assert pattern_cost("a{10}{10}?{10}").states == 1000


ATOMS = (
    "a", ".", "é", "^", "$", "|", "a|", "(a)", "(?:a)", "(?i:k)", "(?i)", "(", "[", "]", "{", "()",
    "a?", "a*", "a+", "a??", "a{2}", "a{1,3}", "a{ 2 }", "(?:a|bc)", "((((a))))", "(?<n>a)", "(?P<n>a)",
    r"\s", r"\S", r"\w", r"\W", r"\d", r"\D", r"\S?", r"(\S)", r"\s{2}", r"\S|", r"\b", r"\B", r"\z", r"\A",
    r"[\s]", r"[\S]", r"[^\w]", r"[\s\S]", r"[a\S]", r"[^\d\s]", "[a-z]", "[^a]", "[^é]", "[[a]]", "[a&&b]",
    r"\cA", r"[\cA]", r"\n", r"\.", r"\/", r"\\S", r"\u00e9", r"\u{e9}", r"\x41", r"\x{41}", "[[:alpha:]]",
    r"\pL", r"\PL", r"\p{L}", r"\P{Greek}", r"[\p{L}\d]", r"\pN\d", r"(?=a)", r"(?!a)", r"(?<=a)", r"(a)\1", r"\k<n>",
    r"[\x00-\uffff]", r"[à-ÿĀ-Ż]", r"[\w&&\S]", r"[^\x00-\u{10fffe}]", "a{0", "a{ ", "a{1,0", r"\p{", "[a", r"[\\",
)  # fmt: skip


@pytest.mark.req("H-22")
@pytest.mark.parametrize("flags", ["", "(?i)"])
@pytest.mark.parametrize("atom", ATOMS)
def test_a_pattern_of_any_kind_is_read_or_refused_in_a_moment(atom: str, flags: str) -> None:
    for count in (400, 1200, 4800):
        assert is_read_in_a_moment(flags + atom * count)


@pytest.mark.req("H-22")
@pytest.mark.parametrize("flags", ["", "(?i)"])
@pytest.mark.parametrize("atom", ATOMS)
def test_the_longest_pattern_that_is_accepted_is_read_in_a_moment(atom: str, flags: str) -> None:
    assert is_read_in_a_moment(flags + atom * most_repetitions(flags, atom))


def is_read_in_a_moment(pattern: str) -> bool:
    titles = itertools.count()

    def read() -> None:
        with suppress(FieldError):
            read_schema("input_schema", {"pattern": pattern, "title": str(next(titles))})

    # Ten times as long as a schema may hold the interpreter: it took seconds.
    return is_done_within(0.15, read)


def most_repetitions(flags: str, atom: str) -> int:
    """How often the atom can be repeated in a pattern until the pattern is too expensive."""
    count, step = 0, 2048
    while step:
        with suppress(FieldError):
            schema_cost("input_schema", {"pattern": flags + atom * (count + step)})
            count += step
        step //= 2
    return count


# ---- the bound against the unfolded schema --------------------------------------------------------

NAMES = ("a", "b")
refs = st.sampled_from([{"$ref": f"#/$defs/{name}"} for name in NAMES])
schemas = st.recursive(
    st.one_of(st.just({}), refs),
    lambda inner: st.one_of(
        st.fixed_dictionaries({"allOf": st.lists(inner, min_size=1, max_size=2)}),
        st.fixed_dictionaries({"properties": st.dictionaries(st.sampled_from(NAMES), inner, max_size=2)}),
        st.fixed_dictionaries({"additionalProperties": inner, "items": inner}),
    ),
    max_leaves=6,
)
values = st.recursive(
    st.none(),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(NAMES), inner, max_size=2)),
    max_leaves=8,
)


def checks(schema: dict[str, Any], value: object, root: dict[str, Any]) -> Iterator[None]:
    """One check for each subschema that applies to the value or to a part of it."""
    yield
    for same in [*schema.get("allOf", []), *([root["$defs"][schema["$ref"][-1]]] if "$ref" in schema else [])]:
        yield from checks(same, value, root)
    if isinstance(value, list) and "items" in schema:
        for entry in value:
            yield from checks(schema["items"], entry, root)
    if isinstance(value, dict):
        for name, entry in value.items():
            for deeper in (schema.get("properties", {}).get(name), schema.get("additionalProperties")):
                if deeper is not None:
                    yield from checks(deeper, entry, root)


@given(schema=schemas, defs=st.fixed_dictionaries(dict.fromkeys(NAMES, schemas)), value=values)
def test_the_cost_is_never_less_than_the_checks_of_the_unfolded_schema(
    schema: dict[str, Any], defs: dict[str, Any], value: object
) -> None:
    root = {**schema, "$defs": defs}
    try:
        cost = schema_cost("input_schema", root)
    except FieldError:
        return
    size = input_size(value)
    bound = sum(cost.checks[min(depth, len(cost.checks) - 1)] * count for depth, count in enumerate(size.values))

    assert sum(1 for _ in checks(root, value, root)) <= bound


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("idn-hostname", "ä." * 20_000),
        ("idn-email", "ä@" + "ö" * 30_000),
        ("regex", "(a{1000}){1000}" * 2_500),
        ("date-time", "2026-01-01T00:00:00." + "1" * 40_000 + "Z"),
    ],
)
def test_a_format_takes_less_time_than_it_is_counted_as(name: str, text: str) -> None:
    schema = {"properties": {"a": {"format": name}}}
    with suppress(FieldError):
        check_input("input", {"a": ""}, schema)  # compiles the schema

    def check() -> None:
        with suppress(FieldError):
            check_input("input", {"a": text}, schema)

    # 20 states of 15 ns for each character, and some for quoting the value that is refused.
    assert is_done_within(0.1, check)
