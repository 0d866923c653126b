"""Messages over gRPC: the published definition, the official library, and our tables agree on every byte."""

from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from grpc_tools import protoc
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw, Struct

from gnomon.adapters import kernel
from gnomon.adapters.kernel.grpc_client import LARGEST_ANSWER
from gnomon.adapters.kernel.wire_format import WireField, WireKind, WireMessage, decode, encode
from gnomon.adapters.kernel.wire_messages import (
    CHECK_METHOD,
    CHECK_OUTPUT_METHOD,
    CHECK_REQUEST,
    CHECK_RESPONSE,
    DECISION_NUMBERS,
    OUTPUT_DECISION_NUMBERS,
    OUTPUT_REQUEST,
    OUTPUT_RESPONSE,
)
from gnomon.core.policy.kernel_messages import (
    DiffConstraints,
    PolicyCheckRequest,
    PolicyCheckResponse,
    PolicyConstraints,
)
from support.counted_calls import counted_calls

pytestmark = pytest.mark.req("R-14")

DEFINITION = Path(str(kernel.__file__)).parent / "safety_kernel.proto"
OUTPUTS = DEFINITION.with_name("output_policy.proto")
_SCALARS = {
    WireKind.TEXT: FieldDescriptor.TYPE_STRING,
    WireKind.TEXTS: FieldDescriptor.TYPE_STRING,
    WireKind.RAW: FieldDescriptor.TYPE_BYTES,
    WireKind.BOOLEAN: FieldDescriptor.TYPE_BOOL,
    WireKind.WORD: FieldDescriptor.TYPE_ENUM,
}


MESSAGES = [
    (CHECK_REQUEST, "PolicyCheckRequest"),
    (CHECK_RESPONSE, "PolicyCheckResponse"),
    (OUTPUT_REQUEST, "OutputCheckRequest"),
    (OUTPUT_RESPONSE, "OutputCheckResponse"),
]


@cache
def compiled(folder: Path) -> descriptor_pool.DescriptorPool:
    """The definition, as the official compiler reads it."""
    made = folder / "set"
    include = f"-I{DEFINITION.parent}"
    files = [DEFINITION.name, OUTPUTS.name]
    assert protoc.main(["protoc", include, f"--descriptor_set_out={made}", *files]) == 0
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(made.read_bytes()).file:
        pool.Add(file)
    return pool


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> descriptor_pool.DescriptorPool:
    return compiled(tmp_path_factory.mktemp("definition"))


def known(pool: descriptor_pool.DescriptorPool, name: str) -> Descriptor:
    package = "cordum.v1" if name.startswith("Output") else "cordum.agent.v1"
    found: Descriptor = pool.FindMessageTypeByName(f"{package}.{name}")
    return found


def differences(ours: WireMessage, theirs: Descriptor) -> list[str]:
    """The fields of a message, and of those in it, that differ from the definition."""
    found = [] if set(ours.by_number) == set(theirs.fields_by_number.keys()) else [f"fields of {theirs.name}"]
    for field in ours.fields:
        other = theirs.fields_by_number[field.number]
        same = field.name == other.name and _same_kind(field, other)
        found += [] if same else [f"{theirs.name}.{other.name}"]
        if field.message is not None:
            found += differences(field.message, other.message_type)
    return found


def _same_kind(field: WireField, other: FieldDescriptor) -> bool:
    several = field.kind in (WireKind.TEXTS, WireKind.MESSAGES, WireKind.TEXT_MAP)
    if bool(other.is_repeated) != several:
        return False
    if field.kind is WireKind.INTEGER:
        return other.type in (FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_INT64)
    return bool(other.type == _SCALARS.get(field.kind, FieldDescriptor.TYPE_MESSAGE))


@pytest.mark.parametrize(("ours", "name"), MESSAGES)
def test_the_tables_say_the_same_as_the_published_definition(
    pool: descriptor_pool.DescriptorPool, ours: WireMessage, name: str
) -> None:
    assert differences(ours, known(pool, name)) == []


def test_the_service_and_its_decisions_have_the_published_names(pool: descriptor_pool.DescriptorPool) -> None:
    service = pool.FindServiceByName("cordum.agent.v1.SafetyKernel")
    decisions = pool.FindEnumTypeByName("cordum.agent.v1.DecisionType")

    assert f"/{service.full_name}/{service.methods[0].name}" == CHECK_METHOD
    words = {value.number: value.name.removeprefix("DECISION_TYPE_").lower() for value in decisions.values}
    assert words == {0: "unspecified", **DECISION_NUMBERS, 3: "require_human"}
    outputs = pool.FindServiceByName("cordum.v1.OutputPolicyService")
    assert f"/{outputs.full_name}/{outputs.methods[0].name}" == CHECK_OUTPUT_METHOD
    about_outputs = pool.FindEnumTypeByName("cordum.v1.OutputDecision")
    words = {value.number: value.name.removeprefix("OUTPUT_DECISION_").lower() for value in about_outputs.values}
    assert words == OUTPUT_DECISION_NUMBERS


texts = st.text(max_size=20)
numbers = st.integers(-(2**31), 2**31 - 1)


def values(message: WireMessage) -> st.SearchStrategy[Struct]:
    return st.builds(message.made, **{field.name: _value(field) for field in message.fields})


_VALUES: dict[WireKind, st.SearchStrategy[Any]] = {
    WireKind.TEXT: texts,
    WireKind.RAW: st.binary(min_size=1, max_size=20).map(Raw),
    WireKind.TEXTS: st.lists(texts, max_size=3).map(tuple),
    WireKind.TEXT_MAP: st.dictionaries(texts, texts, max_size=3),
    WireKind.INTEGER: numbers,
    WireKind.BOOLEAN: st.booleans(),
}


def _value(field: WireField) -> st.SearchStrategy[Any]:
    if field.kind is WireKind.WORD:
        # Zero is not sent.
        return st.sampled_from(["", *(word for number, word in field.words.items() if number)])
    if field.message is None:
        return _VALUES[field.kind]
    inner = values(field.message)
    return inner if field.kind is WireKind.MESSAGE else st.lists(inner, max_size=2).map(tuple)


def shown(value: object) -> object:
    """A value with its raw parts as bytes, which can be compared."""
    if isinstance(value, Raw):
        return bytes(value)
    if isinstance(value, Struct):
        return {name: shown(part) for name, part in msgspec.structs.asdict(value).items()}
    return tuple(map(shown, value)) if isinstance(value, tuple) else value


def library_value(message: WireMessage, read: Any) -> object:  # noqa: ANN401 - made by the library
    """The same value, as the official library has read it."""
    found: dict[str, object] = {}
    for field in message.fields:
        value = getattr(read, field.name)
        match field.kind:
            case WireKind.TEXTS:
                value = tuple(value)
            case WireKind.TEXT_MAP:
                value = dict(value)
            case WireKind.WORD:
                value = field.words.get(value, "") if value else ""
            case WireKind.MESSAGE:
                assert field.message is not None
                value = library_value(field.message, value)
            case WireKind.MESSAGES:
                assert field.message is not None
                value = tuple(library_value(field.message, one) for one in value)
            case _:
                pass
        found[field.name] = value
    return found


@pytest.mark.parametrize(("ours", "name"), MESSAGES)
@given(data=st.data())
def test_the_official_library_reads_the_bytes_that_are_written_and_writes_bytes_that_are_read(
    pool: descriptor_pool.DescriptorPool, ours: WireMessage, name: str, data: st.DataObject
) -> None:
    value = data.draw(values(ours))
    theirs = message_factory.GetMessageClass(known(pool, name)).FromString(encode(ours, value))

    assert library_value(ours, theirs) == shown(value)
    assert shown(decode(ours, theirs.SerializeToString())) == shown(value)


@given(st.binary(max_size=200))
def test_bytes_of_any_kind_are_a_message_or_a_clear_error(data: bytes) -> None:
    for message in (CHECK_REQUEST, CHECK_RESPONSE):
        with suppress(ValueError):
            assert isinstance(decode(message, data), PolicyCheckRequest | PolicyCheckResponse)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x0a\x05ab", "ends within a field"),
        (b"\x0a", "ends within a number"),
        (b"\x0a\x02\xff\xfe", "job_id is not UTF-8"),
        (b"\x08\x01", "job_id has the wire type 0"),
        (b"\x0b", "a field of the wire type 3"),
        (b"\x00\x00", "a field with the number 0"),
        (b"\x80" * 11, "one that is too long"),
    ],
)
def test_bytes_that_are_no_message_say_why(data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        decode(CHECK_REQUEST, data)


def test_messages_that_are_too_deep_in_each_other_are_refused() -> None:
    class Deep(Struct):
        inner: object = None

    message = WireMessage(Deep)
    message.by_number[1] = WireField(1, "inner", WireKind.MESSAGE, message)
    data = b""
    for _ in range(30):
        data = b"\x0a" + (bytes([len(data)]) if len(data) < 128 else b"") + data

    with pytest.raises(ValueError, match="too deep"):
        decode(message, data)


@pytest.mark.parametrize(
    "part",
    [
        pytest.param(b"\x4a\x00", id="remediations"),
        pytest.param(b"\x32\x04\x22\x02\x1a\x00", id="lists in messages that are merged"),
        pytest.param(b"\x90\x03\x00", id="unknown fields"),
    ],
)
def test_a_message_with_very_many_fields_is_refused_after_ten_thousand(part: bytes) -> None:
    data = part * (LARGEST_ANSWER // len(part))

    def refused() -> None:
        with pytest.raises(ValueError, match="more than 10000 fields"):
            decode(CHECK_RESPONSE, data)

    assert counted_calls(refused) < 100_000


def test_parts_of_a_message_that_is_there_twice_are_merged() -> None:
    part = b"\x32\x05\x22\x03\x1a\x01a"

    found = decode(CHECK_RESPONSE, part * 3)

    assert found == PolicyCheckResponse(constraints=PolicyConstraints(diff=DiffConstraints(deny_path_globs=("a",) * 3)))


def test_unknown_fields_and_unknown_decisions_are_survived() -> None:
    answer = decode(CHECK_RESPONSE, b"\x08\x09\xc2\x3e\x03abc\xf5\x01\x00\x00\x00\x00\x2a\x01r")

    assert answer == PolicyCheckResponse(decision="number 9", rule_id="r")
