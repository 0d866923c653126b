"""The cost of checking values by a JSON Schema, bounded before anything is checked.

A schema of a few hundred bytes can take hours: a `$ref` that two branches reach doubles the work at each level, and so
does recursion. The library that checks values holds the interpreter meanwhile and cannot be interrupted. So the work is
computed first. `schema_cost` finds, for each depth of a value, how many subschemas apply to one value there at most.
That number is computed per subschema and depth from the numbers below it, never by expanding the schema. An input is
checked only if the numbers times the values of the input stay within a budget. The verdict depends on nothing but the
schema and the input: it is the same on every node and on a slow machine.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any
from urllib.parse import unquote

from msgspec import Struct

from gnomon.core.jobs.pattern_cost import PatternCost, pattern_cost
from gnomon.errors import FieldError

#: The limits of a schema: subschemas, JSON values in all, and how many subschemas may apply to one value.
MOST_SUBSCHEMAS, MOST_VALUES, MOST_PER_VALUE = 1000, 10_000, 10_000
#: The limit of all patterns of a schema together, in states of their automata.
MOST_STATES = 5_000
#: The subschemas that are looked at, summed over all depths, to compute the cost.
_MOST_STEPS = 8_000
#: The deepest value of an input.
_DEEPEST = 64

# ---- the keywords, by the values that their subschemas apply to -----------------------------------

_SAME_VALUE = ("not", "if", "then", "else")
_SAME_VALUE_LISTS = ("allOf", "anyOf", "oneOf")
_SAME_VALUE_MAPS = ("dependentSchemas", "dependencies")
_EACH_PROPERTY = ("additionalProperties", "unevaluatedProperties", "propertyNames")
_EACH_ITEM = ("additionalItems", "contains", "unevaluatedItems")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_ANCHORS = ("$anchor", "$dynamicAnchor")
_UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")
_CONTENT = ("contentEncoding", "contentMediaType")
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
#: Lists of names that a value must have if it has another one.
_DEPENDENT_NAMES = ("dependentRequired", "dependencies")
#: A subschema with one of these checks the subschemas of the same value again, to learn what they cover.
_UNEVALUATED_FACTOR = 5
#: How long the library looks at one of those when it compiles the schema, and how many names count as much.
_COVERING_NS, _NAMES_COVERING = 2500, 20
#: `multipleOf` computes with fractions: the checks it counts as, for whole numbers, others, and very small ones.
_WHOLE_MULTIPLE, _MULTIPLE, _SMALL_MULTIPLE = 8, 60, 1100
#: Comparing with a number computes with fractions, too: the checks that a number in `enum` or `const` counts as, for
#: whole numbers, others, and very large or small ones.
_WHOLE_COMPARED, _FRACTION_COMPARED, _EXTREME_COMPARED = 3, 6, 50
#: How many states a format counts as, and content that is decoded: the slowest one takes that long per character.
_FORMAT_STATES, _CONTENT_STATES = 20, 2
_PATTERN_STATES = 30
_COMPILED_TOO_LONG = (
    r"makes the patterns too expensive to compile: shorten them, and use fewer of \s, \S, \w, \W, \d, \D and \c"
)


class SchemaCost(Struct, frozen=True):
    """How much work one value takes at most, by its depth in the input; the last entry counts for all deeper values."""

    #: The subschemas that apply to the value.
    checks: tuple[int, ...]
    #: The states of the patterns that each character of the value may pass.
    states: tuple[int, ...]
    #: How often the items of the value are compared with each other, for `uniqueItems`.
    comparisons: tuple[int, ...]
    #: Whether a value is tried against several subschemas, of which each contributes its errors.
    has_branches: bool


class _Subschema(Struct):
    """A subschema, and the subschemas under it, by number."""

    checks: int = 1
    states: int = 0
    comparisons: int = 0
    factor: int = 1
    #: The entries of its lists and mappings that `unevaluatedProperties` and `unevaluatedItems` look at.
    covering: int = 0
    same_value: list[int] = []
    property_by_name: list[int] = []
    each_property: list[int] = []
    item_by_place: list[int] = []
    each_item: list[int] = []


def schema_cost(field: str, schema: Mapping[str, Any]) -> SchemaCost:
    """The cost of the schema; raise FieldError if it is too large, recursive without end, or too expensive."""
    if sum(1 for _ in _values(schema)) > MOST_VALUES:
        raise FieldError(field, schema, f"has more than {MOST_VALUES} values")
    graph = _SchemaGraph(field, schema)
    try:
        order = _in_order(graph.subschemas)
        _check_covering(graph.subschemas, order)
        checks = _per_depth(graph.subschemas, order, [one.checks for one in graph.subschemas])
        states = _per_depth(graph.subschemas, order, [one.states for one in graph.subschemas])
        comparisons = _per_depth(graph.subschemas, order, [one.comparisons for one in graph.subschemas])
    except _Endless as error:
        raise FieldError(field, schema, str(error)) from None
    return SchemaCost(checks, states, comparisons, graph.has_branches)


class _Endless(Exception):
    """The cost has no bound, or none that is small enough."""


def _values(value: object) -> Iterator[object]:
    yield value
    for entry in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        yield from _values(entry)


class _SchemaGraph:
    """All subschemas that can apply to a value, found from the root; the root has the number 0."""

    def __init__(self, field: str, schema: Mapping[str, Any]) -> None:
        self._field = field
        self._root = schema
        #: In draft 4, `id` begins another document, as `$id` does later.
        self._ids = ("$id", "id") if "draft-04" in str(schema.get("$schema")) else ("$id",)
        self._anchors = self._read_anchors()
        self._patterns: dict[str, PatternCost] = {}
        self._check_all_parts()
        self._numbers: dict[int, int] = {}
        self.subschemas: list[_Subschema] = []
        self.has_branches = False
        self._compared: int | None = None
        self._waiting: list[Mapping[str, Any]] = []
        self._number(schema)
        while self._waiting:
            source = self._waiting.pop()
            self._read(source, self.subschemas[self._numbers[id(source)]])

    def _read_anchors(self) -> dict[str, Mapping[str, Any]]:
        """The subschemas with a name. A second document inside, or a second meaning of a name, is refused.

        Otherwise a reference could mean one subschema here, and another one to the library that checks inputs.
        """
        found: dict[str, Mapping[str, Any]] = {}
        for one in _values(self._root):
            if not isinstance(one, Mapping):
                continue
            names = [one[key] for key in _ANCHORS if isinstance(one.get(key), str)]
            for own in [one[key] for key in self._ids if isinstance(one.get(key), str)]:
                if own.startswith("#"):
                    names.append(own[1:])
                elif one is not self._root:
                    raise FieldError(self._field, own, "is an id inside of the schema: only the whole has one")
            for name in names:
                if found.setdefault(name, one) is not one:
                    raise FieldError(self._field, name, "is the anchor of two subschemas")
        return found

    def _check_all_parts(self) -> None:
        """Raise FieldError if patterns or lists of values are too expensive, also where nothing refers to them.

        The library compiles every pattern of the schema, and the older drafts require that the values of `enum` differ.
        """
        states = compile_ns = comparisons = 0
        for one in _values(self._root):
            if not isinstance(one, Mapping):
                continue
            comparisons += sum(item_comparisons(one.get("enum")))
            if _COMPARISON_NS * comparisons > _BUDGET_NS:
                raise FieldError(self._field, one["enum"], "has too many values that are expensive to compare")
            for pattern in _patterns(one):
                cost = self._pattern_cost(pattern)
                states += _PATTERN_STATES + cost.states
                compile_ns += cost.compile_ns
                if states > MOST_STATES:
                    reason = f"makes the patterns too expensive: together they may have {MOST_STATES} states"
                    raise FieldError(self._field, pattern, reason)
                if compile_ns > _BUDGET_NS:
                    raise FieldError(self._field, pattern, _COMPILED_TOO_LONG)

    def _pattern_cost(self, pattern: str) -> PatternCost:
        if pattern not in self._patterns:
            try:
                self._patterns[pattern] = pattern_cost(pattern)
            except ValueError as error:
                raise FieldError(self._field, pattern, str(error)) from None
        return self._patterns[pattern]

    def _number(self, source: object) -> list[int]:
        """The number of the subschema, in a list; none for `true` and `false`, which cost nothing."""
        if not isinstance(source, Mapping):
            return []
        if id(source) not in self._numbers:
            if len(self.subschemas) == MOST_SUBSCHEMAS:
                raise FieldError(self._field, self._root, f"has more than {MOST_SUBSCHEMAS} subschemas")
            self._numbers[id(source)] = len(self.subschemas)
            self.subschemas.append(_Subschema())
            self._waiting.append(source)
        return [self._numbers[id(source)]]

    def _number_all(self, sources: object) -> list[int]:
        many = sources.values() if isinstance(sources, Mapping) else sources if isinstance(sources, list) else ()
        return [number for source in many for number in self._number(source)]

    def _read(self, source: Mapping[str, Any], found: _Subschema) -> None:
        found.same_value = [number for key in _SAME_VALUE for number in self._number(source.get(key))]
        for key in (*_SAME_VALUE_LISTS, *_SAME_VALUE_MAPS):
            found.same_value += self._number_all(source.get(key))
        for key in _REFERENCES:
            if isinstance(source.get(key), str):
                found.same_value += self._number(self._referenced(source[key]))
        found.property_by_name = self._number_all(source.get("properties"))
        found.each_property = self._number_all(source.get("patternProperties"))
        found.each_property += [number for key in _EACH_PROPERTY for number in self._number(source.get(key))]
        found.item_by_place = self._number_all(source.get("prefixItems"))
        found.each_item = [number for key in _EACH_ITEM for number in self._number(source.get(key))]
        if isinstance(source.get("items"), list):
            found.item_by_place += self._number_all(source["items"])
        else:
            found.each_item += self._number(source.get("items"))
        self._weigh(source, found)

    def _weigh(self, source: Mapping[str, Any], found: _Subschema) -> None:
        self.has_branches |= "anyOf" in source or "oneOf" in source
        if source.get("uniqueItems") is True:
            found.each_item += self._comparison()
            found.comparisons = 1
        if any(key in source for key in _UNEVALUATED):
            found.factor = _UNEVALUATED_FACTOR
        branches = _constant_branches(source)
        named_values = _length(source.get("properties")) + _length(source.get("patternProperties"))
        found.covering = 1 + branches + named_values // _NAMES_COVERING
        compared = sum(_compared(source.get(key)) for key in ("enum", "const"))
        compared += sum(_EXTREME_COMPARED for key in _BOUNDS if _is_extreme(source.get(key)))
        named = sum(_length(source.get(key)) for key in ("required", "properties"))
        named += sum(_length(one) for key in _DEPENDENT_NAMES for one in _entries(source.get(key)))
        found.checks += compared + named // 4 + branches + _multiple_checks(source.get("multipleOf"))
        if isinstance(source.get("pattern"), str):
            found.states = self._pattern_cost(source["pattern"]).states
        if "format" in source:
            found.states += _FORMAT_STATES
        if any(key in source for key in _CONTENT):
            found.states += _CONTENT_STATES
        patterns = source.get("patternProperties")
        if isinstance(patterns, Mapping):
            # The name of a property counts as a value beside the value of the property.
            found.each_property.append(len(self.subschemas))
            states = sum(self._pattern_cost(pattern).states for pattern in patterns)
            self.subschemas.append(_Subschema(checks=len(patterns), states=states))

    def _comparison(self) -> list[int]:
        """The number of a subschema that stands for comparing whole values, however deep."""
        if self._compared is None:
            self._compared = len(self.subschemas)
            deeper = [self._compared]
            self.subschemas.append(_Subschema(checks=2, each_property=deeper, each_item=deeper))
        return [self._compared]

    def _referenced(self, reference: str) -> object:
        """The subschema that a reference names."""
        own = next((self._root[key] for key in self._ids if key in self._root), None)
        base, _, place = reference.partition("#")
        if base and base != (own.rstrip("#") if isinstance(own, str) else None):
            raise FieldError(self._field, reference, "is an external reference, and those are not fetched")
        try:
            place = unquote(place, errors="strict")
        except UnicodeDecodeError:
            raise FieldError(self._field, reference, "is a reference with characters that are not UTF-8") from None
        found: object = self._root
        if place and not place.startswith("/"):
            found = self._anchors.get(place)
        for key in place.split("/")[1:] if place.startswith("/") else ():
            found = _entry(found, key.replace("~1", "/").replace("~0", "~"))
        if not isinstance(found, Mapping | bool):
            raise FieldError(self._field, reference, "is a reference to nothing in this schema")
        return found


def _constant_branches(source: Mapping[str, Any]) -> int:
    """How many branches are `true` or `false`: they have no subschema of their own to count them."""
    lists = [source[key] for key in _SAME_VALUE_LISTS if isinstance(source.get(key), list)]
    maps = [source[key].values() for key in _SAME_VALUE_MAPS if isinstance(source.get(key), Mapping)]
    return sum(not isinstance(one, Mapping) for many in (*lists, *maps) for one in many)


def _length(value: object) -> int:
    return len(value) if isinstance(value, list | dict) else 0


def _patterns(source: Mapping[str, Any]) -> list[str]:
    """The patterns of a subschema, for its value and for the names of properties."""
    named = source.get("patternProperties")
    own = source.get("pattern")
    return [*(named if isinstance(named, Mapping) else ()), *([own] if isinstance(own, str) else [])]


def _entries(value: object) -> Iterable[object]:
    return value.values() if isinstance(value, Mapping) else ()


def _multiple_checks(multiple: object) -> int:
    if not isinstance(multiple, int | float):
        return 0
    if multiple == int(multiple):
        return _WHOLE_MULTIPLE
    return _MULTIPLE if abs(multiple) > 1e-9 else _SMALL_MULTIPLE


def _compared(value: object) -> int:
    """The cost of comparing with the values of `enum` or `const`: plain ones that are no numbers are in a table."""
    many = value if isinstance(value, list) else [value]
    nested = sum(1 for one in many if isinstance(one, list | dict) for _ in _values(one)) // 8
    return nested + sum(map(_number_checks, _values(many)))


def _number_checks(value: object) -> int:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return 0
    if isinstance(value, int):
        return _WHOLE_COMPARED
    return _EXTREME_COMPARED if _is_extreme(value) else _FRACTION_COMPARED


def _entry(value: object, key: str) -> object:
    if isinstance(value, Mapping):
        return value.get(key)
    if isinstance(value, list) and key.isdecimal() and len(key) < 6 and int(key) < len(value):
        return value[int(key)]
    return None


def _in_order(subschemas: Sequence[_Subschema]) -> list[int]:
    """The subschemas, each after those that apply to the same value because of it."""
    try:
        return list(TopologicalSorter({n: one.same_value for n, one in enumerate(subschemas)}).static_order())
    except CycleError:
        raise _Endless("refers to itself for the same value, which never ends") from None


# ---- the cost by depth ---------------------------------------------------------------------------


def _per_depth(subschemas: Sequence[_Subschema], order: Sequence[int], own: Sequence[int]) -> tuple[int, ...]:
    """The sum of `own` over the subschemas that apply to one value, at each depth below the root.

    It ends at the depth from which on the sums repeat; its last entry is the largest of those.
    """
    found = [_at_depth_0(subschemas, order, own)]
    while _bounded(found[-1][0], len(found) - 1) and len(found) <= _DEEPEST:
        if len(found) * len(order) > _MOST_STEPS:
            raise _Endless("is nested too deeply for its size")
        deeper = _one_deeper(subschemas, order, found[-1])
        # The sums of a depth follow from those of the one above: equal ones begin the same sequence again.
        again = found.index(deeper) if deeper in found else None
        found.append(deeper)
        if again is not None:
            found.append([max(sums) for sums in zip(*found[again:], strict=True)])
            break
    return tuple(one[0] for one in found)


def _bounded(count: int, depth: int) -> bool:
    if count > MOST_PER_VALUE:
        where = f"a value {depth} deep" if depth else "one value"
        raise _Endless(
            f"makes more than {MOST_PER_VALUE} checks of {where}: references, recursion or lists multiply them"
        )
    return True


def _at_depth_0(subschemas: Sequence[_Subschema], order: Sequence[int], own: Sequence[int]) -> list[int]:
    found = [0] * len(order)
    for number in order:
        one = subschemas[number]
        found[number] = own[number] + one.factor * _total(found, one.same_value)
    return found


def _one_deeper(subschemas: Sequence[_Subschema], order: Sequence[int], above: Sequence[int]) -> list[int]:
    """The sums for one depth more. A value is a property or an item, and a property has one name."""
    properties, items = [0] * len(order), [0] * len(order)
    for number in order:
        one = subschemas[number]
        own = _largest(above, one.property_by_name) + _total(above, one.each_property)
        properties[number] = own + one.factor * _total(properties, one.same_value)
        own = _largest(above, one.item_by_place) + _total(above, one.each_item)
        items[number] = own + one.factor * _total(items, one.same_value)
    return [max(pair) for pair in zip(properties, items, strict=True)]


def _check_covering(subschemas: Sequence[_Subschema], order: Sequence[int]) -> None:
    """Raise _Endless if the library looks at too many subschemas to learn what each `unevaluated...` leaves over."""
    covering = [0] * len(order)
    for number in order:
        covering[number] = subschemas[number].covering + _total(covering, subschemas[number].same_value)
    looked_at = sum(covering[number] for number in order if subschemas[number].factor > 1)
    if _COVERING_NS * looked_at > _BUDGET_NS:
        raise _Endless("has too many subschemas below those with unevaluatedProperties or unevaluatedItems")


def _total(costs: Sequence[int], numbers: Sequence[int]) -> int:
    return sum([costs[number] for number in numbers])


def _largest(costs: Sequence[int], numbers: Sequence[int]) -> int:
    return max([costs[number] for number in numbers], default=0)


# ---- inputs --------------------------------------------------------------------------------------

#: The longest that a check of an input may take, and how long one check, one state per character and one comparison
#: of two values take, measured.
_BUDGET_NS, _CHECK_NS, _STATE_NS, _COMPARISON_NS = 15_000_000, 40, 15, 20


#: A number with a large exponent counts as this many values: its fraction has hundreds of digits.
_EXTREME_VALUES = 16


class InputSize(Struct, frozen=True):
    """The values of an input and the characters in them, by depth. The name of a property counts with its value."""

    values: tuple[int, ...]
    characters: tuple[int, ...]
    #: The comparisons between the items of lists, if a schema needs them.
    comparisons: tuple[int, ...] = ()


#: The largest list whose items are compared each with each; the items of a larger one are looked up in a table.
_SHORT_LIST = 15
#: Numbers that not every float distinguishes: the table has them all in one place.
_LARGE_NUMBER = 2**53
#: The comparisons that a number counts as, by its kind: large, with a fraction, very large or small.
_LARGE_COMPARISONS, _FRACTION_COMPARISONS, _EXTREME_COMPARISONS = 7, 20, 2200


def item_comparisons(value: object) -> tuple[int, ...]:
    """The comparisons between the items of each list in the value, by the depth of the list.

    Items that the table of a long list may have in one place are compared each with each: lists, since their nesting
    makes no difference there, and large numbers.
    """
    found: list[int] = []
    _weigh_items(value, 0, found)
    return tuple(found)


def _weigh_items(value: object, depth: int, found: list[int]) -> tuple[int, bool]:
    """The weight of a value in a comparison, and whether another one may have the same place in a table."""
    if isinstance(value, Mapping | list):
        if len(found) <= depth:
            found.append(0)
        entries = value.values() if isinstance(value, Mapping) else value
        weighed = [_weigh_items(one, depth + 1, found) for one in entries]
        is_list = isinstance(value, list)
        if is_list:
            compared = [weight for weight, alike in weighed if alike or len(weighed) <= _SHORT_LIST]
            found[depth] += len(compared) * sum(compared)
        return 1 + sum(weight for weight, _ in weighed), is_list or any(alike for _, alike in weighed)
    if isinstance(value, float):
        return _EXTREME_COMPARISONS if _is_extreme(value) else _FRACTION_COMPARISONS, False
    if isinstance(value, int) and abs(value) > _LARGE_NUMBER:
        return _LARGE_COMPARISONS, True
    return 1, False


def _is_extreme(value: object) -> bool:
    """Whether the value is a number whose fraction has hundreds of digits."""
    return isinstance(value, float) and value != 0 and not 1e-12 < abs(value) < 1e18


def input_size(value: object, *, compared: bool = False) -> InputSize:
    """The size of an input; with `compared`, also how long it takes to compare the items of its lists."""
    values, characters = list[int](), list[int]()
    level: list[object] = [value]
    names: list[str] = []
    while level:
        extreme = sum(map(_is_extreme, level))
        values.append(len(level) + _EXTREME_VALUES * extreme)
        characters.append(sum(len(one) for one in level if isinstance(one, str)) + sum(map(len, names)))
        above, level, names = level, [], []
        for one in above:
            if isinstance(one, Mapping):
                names += one
                level += one.values()
            elif isinstance(one, list | tuple):
                level += one
    return InputSize(tuple(values), tuple(characters), item_comparisons(value) if compared else ())


def is_affordable(cost: SchemaCost, size: InputSize) -> bool:
    """Whether checking an input of that size takes no longer than the event loop of the scheduler can wait."""
    spent = _CHECK_NS * _sum_product(cost.checks, size.values)
    spent += _STATE_NS * _sum_product(cost.states, size.characters)
    return spent + _COMPARISON_NS * _sum_product(cost.comparisons, size.comparisons) <= _BUDGET_NS


def _sum_product(per_depth: Sequence[int], counts: Sequence[int]) -> int:
    return sum(per_depth[min(depth, len(per_depth) - 1)] * count for depth, count in enumerate(counts))


#: How many checks of branches may fail before only the fact is reported: each error takes the library 15 µs.
_MOST_ERRORS = 1000


def is_explicable(cost: SchemaCost, size: InputSize) -> bool:
    """Whether collecting the errors of every branch is cheap enough to name the wrong value."""
    return not cost.has_branches or _sum_product(cost.checks, size.values) <= _MOST_ERRORS
