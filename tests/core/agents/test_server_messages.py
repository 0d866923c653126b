"""The messages of servers with tools, as a client reads them."""

import json
from typing import Any

import pytest

from gnomon.core.agents.server_messages import (
    ServerAnswer,
    ServerDemand,
    ToolOutput,
    checked_greeting,
    event_messages,
    output_of,
    read_message,
    tools_of,
)
from gnomon.errors import FieldError, UsageError


def read(**message: object) -> object:
    return read_message(json.dumps({"jsonrpc": "2.0", **message}).encode())


def test_an_answer_has_a_result_or_an_error() -> None:
    answer, odd = read(id=3, result={"tools": []}), read(id=3, result=7)

    assert isinstance(answer, ServerAnswer)
    assert (answer.number, answer.checked_result()) == (3, {"tools": []})
    assert isinstance(odd, ServerAnswer)
    assert odd.checked_result() == {}
    assert read(id=3, error={"code": -1, "message": "no\x1b such\n tool"}) == ServerAnswer(3, error="no such tool")
    assert read(id=3, error="x") == ServerAnswer(3, error="it gave no reason")


@pytest.mark.parametrize(
    "message",
    [
        {"method": "log"},
        {"id": True},
        {"id": "a"},
        {"id": [1], "method": "ping"},
        {"id": "a" * 1_000, "method": "ping"},
        {},
    ],
)
def test_a_message_that_answers_nothing_is_passed_over(message: dict[str, Any]) -> None:
    assert read(**message) is None


@pytest.mark.parametrize("body", [b"", b"[", b"[" * 100_000, b"[]", b"7", b"\xff", b'"\\ud800"'])
def test_nonsense_is_no_message(body: bytes) -> None:
    with pytest.raises(UsageError, match="it sent what is no message"):
        read_message(body)


def test_a_server_may_ask_whether_the_client_lives_and_nothing_else() -> None:
    alive, refused = read(id="a", method="ping"), read(id=1, method="sampling/createMessage", params={})

    assert isinstance(alive, ServerDemand)
    assert isinstance(refused, ServerDemand)
    assert json.loads(alive.answer) == {"jsonrpc": "2.0", "id": "a", "result": {}}
    assert json.loads(refused.answer)["error"]["code"] == -32601


def test_the_messages_of_a_stream_of_events_are_those_of_its_data() -> None:
    stream = b': hello\r\n\r\nevent: message\r\ndata: {"a":\r\ndata: 1}\r\nid: 1\r\n\r\ndata: x'

    assert event_messages(stream) == [b'{"a":\n1}', b"x"]


def test_a_version_that_is_not_known_is_refused() -> None:
    assert checked_greeting({"protocolVersion": "2025-03-26"}) == "2025-03-26"
    for version in ("1999-01-01", None, 7, "x" * 999):
        with pytest.raises(UsageError, match="unknown version"):
            checked_greeting({"protocolVersion": version})


def tool(**changes: object) -> dict[str, object]:
    return {"name": "look", "description": "Look.", "inputSchema": {"type": "object"}, **changes}


def test_only_wanted_tools_are_read_and_the_first_of_a_name_counts() -> None:
    page = {"tools": [7, tool(name="other"), tool(), tool(description="Later.")], "nextCursor": "more"}

    found, cursor = tools_of(page, frozenset(("look",)))

    assert (list(found), cursor) == (["look"], "more")
    assert "\nLook.\n" in found["look"].description
    assert tools_of({"tools": 7, "nextCursor": 7}, frozenset(("look",))) == ({}, "")


def test_a_description_is_framed_short_and_visible() -> None:
    hidden = "".join(chr(0xE0000 + ord(char)) for char in "obey")
    page = {"tools": [tool(description=f"Look.{hidden}\u202e" + "x" * 5_000)]}

    found, _ = tools_of(page, frozenset(("look",)))

    description = found["look"].description
    assert description.startswith("<data-")
    assert "\\U000e006f" in description
    assert "\\u202e" in description
    assert len(description) < 1_500
    assert description.replace("\n", "").isprintable()


@pytest.mark.parametrize("schema", [None, [], {"type": "array"}, {"type": "object", "$ref": "http://a/b"}])
def test_a_tool_with_a_schema_that_is_none_is_refused(schema: object) -> None:
    with pytest.raises(FieldError, match=r"tools\.look\.inputSchema"):
        tools_of({"tools": [tool(inputSchema=schema)]}, frozenset(("look",)))


def test_the_text_of_a_result_is_bounded_and_other_content_is_left_out() -> None:
    parts = [{"type": "text", "text": "seven"}, {"type": "image", "data": "x"}, 5, {"type": "text", "text": 5}]

    assert output_of({"content": parts}, 1000).text == "seven\n[image left out]\n[None left out]\n[text left out]"
    assert output_of({"structuredContent": {"n": 7}}, 1000) == ToolOutput('{"n":7}')
    assert output_of({"content": "x", "isError": True}, 1000) == ToolOutput("", failed=True)
    assert len(output_of({"content": [{"type": "text", "text": "x" * 9_999}]}, 100).text) <= 110
    many = output_of({"content": [{"type": "text", "text": "x"}] * 1_002}, 100_000).text
    assert many.splitlines() == ["x"] * 1_000 + ["[2 more parts left out]"]


def test_lists_without_end_are_refused_before_they_are_looked_through() -> None:
    with pytest.raises(UsageError, match="more than 10000 tools"):
        tools_of({"tools": [0] * 10_001}, frozenset(("look",)))
    with pytest.raises(UsageError, match="too many messages"):
        event_messages(b"data: {}\n\n" * 10_000)


def test_nobody_reads_what_nobody_waits_for() -> None:
    """The text of the result is not UTF-8: it is an error for the request that waits for it, and for no other."""
    answer = read_message(b'{"jsonrpc": "2.0", "id": 3, "result": {"content": "\xff"}}')

    assert isinstance(answer, ServerAnswer)
    with pytest.raises(UsageError, match="it sent what is no message"):
        answer.checked_result()
