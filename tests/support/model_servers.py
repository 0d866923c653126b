"""Servers that speak the protocols of model providers, with scripted turns."""

import json
from collections.abc import Mapping
from typing import Any

from support.scripted_server import ScriptedReply, json_reply


def openai_text(text: str, *, read: int = 10, written: int = 5) -> ScriptedReply:
    """The answer of an OpenAI-compatible server that ends the conversation."""
    return _openai({"role": "assistant", "content": text}, "stop", read, written)


def openai_calls(*calls: tuple[str, Mapping[str, Any]], read: int = 10, written: int = 5) -> ScriptedReply:
    """The answer of an OpenAI-compatible server that calls tools."""
    made = [
        {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for number, (name, arguments) in enumerate(calls)
    ]
    return _openai({"role": "assistant", "content": None, "tool_calls": made}, "tool_calls", read, written)


def _openai(message: Mapping[str, Any], finish: str, read: int, written: int) -> ScriptedReply:
    return json_reply(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "scripted",
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            "usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written},
        }
    )


def anthropic_text(text: str, *, read: int = 10, written: int = 5) -> ScriptedReply:
    """The answer of an Anthropic-compatible server that ends the conversation."""
    return _anthropic([{"type": "text", "text": text}], "end_turn", read, written)


def anthropic_calls(*calls: tuple[str, Mapping[str, Any]]) -> ScriptedReply:
    """The answer of an Anthropic-compatible server that calls tools."""
    made = [
        {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": arguments}
        for number, (name, arguments) in enumerate(calls)
    ]
    return _anthropic(made, "tool_use", 10, 5)


def _anthropic(content: list[dict[str, Any]], stop: str, read: int, written: int) -> ScriptedReply:
    return json_reply(
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "scripted",
            "content": content,
            "stop_reason": stop,
            "stop_sequence": None,
            "usage": {"input_tokens": read, "output_tokens": written},
        }
    )


def tool_results(request: Mapping[str, Any]) -> list[str]:
    """The results of tools that a request to an OpenAI-compatible server reports, in their order."""
    return [message["content"] for message in request["messages"] if message["role"] == "tool"]
