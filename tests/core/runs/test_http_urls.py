"""Data and secrets filled into a URL never change its host or leave their places."""

from functools import partial
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from gnomon.core.runs.expressions import DataAllowance
from gnomon.core.runs.http_urls import check_url, fill_url, final_url
from gnomon.core.runs.secret_text import escape_data
from gnomon.errors import FieldError

TEMPLATE = "https://api.example:8443/v1/${input.a}/x-${steps.s.output.b}/y?q=${input.c}&r=${secret:TOKEN}&s=1"
#: Texts that mean something in URLs, among any others.
TEXTS = st.text(st.characters(codec="utf-8"), max_size=30) | st.sampled_from(
    ["..", ".", "%2e%2e", "../..", "a/b", "?x=1", "#f", "&r=2", "@evil.example", "//evil.example", "\\\\evil.example",
     "\r\nX: y", "\0", "${secret:TOKEN}", "$${secret:TOKEN}", "${input.c}", "a+b", "a%2Fb", "Zürich", "🙂", ";x", ":80",
     " ", "{secret:TOKEN}"]
)  # fmt: skip


def filled(url: str, *, hidden: str = "hunter22", **values: Any) -> str:  # noqa: ANN401 - any JSON
    """The URL that is called, with these values in the input of the run and the output of a step."""
    scope = {"input": escape_data(values), "steps": {"s": {"output": values}}}
    return final_url("http.url", fill_url("http.url", url, scope, DataAllowance(1 << 20)), lambda _: hidden)


def names_one_segment(value: str) -> bool:
    """Whether a server that decodes a value, and resolves its dots, still finds it where it was written."""
    return not {".", ".."} & set(value.replace("\\", "/").split("/"))


@given(a=TEXTS, b=TEXTS, c=TEXTS, hidden=TEXTS)
@example(a="x", b="$", c="", hidden="x")
@example(a="x$", b="x", c="$", hidden="$")
def test_every_value_stays_in_its_place(a: str, b: str, c: str, hidden: str) -> None:
    assume(a and b and names_one_segment(a) and names_one_segment(f"x-{b}"))
    url = filled(TEMPLATE, a=a, b=b, c=c, hidden=hidden)
    parts = urlsplit(url)

    assert url.isascii()
    assert url.isprintable()
    assert (parts.scheme, parts.netloc, parts.fragment) == ("https", "api.example:8443", "")
    assert [unquote(part, errors="strict") for part in parts.path.split("/")] == ["", "v1", a, f"x-{b}", "y"]
    assert [(key, value) for key, value in (pair.split("=") for pair in parts.query.split("&")) if key == "s"]
    assert parse_qsl(parts.query, keep_blank_values=True) == [("q", c), ("r", hidden), ("s", "1")]


@given(base=st.sampled_from(["https://h.example", "http://h.example:1/a", "https://h.example/a?k=1"]), a=TEXTS)
def test_a_secret_at_the_beginning_is_a_url_and_data_behind_it_stays_a_value(base: str, a: str) -> None:
    assume(a and names_one_segment(a))
    url = filled("${secret:BASE}/${input.a}", hidden=base, a=a)

    assert urlsplit(url).netloc == urlsplit(base).netloc
    assert url.startswith(f"{base}/")
    assert unquote(url.removeprefix(f"{base}/"), errors="strict") == a


@pytest.mark.parametrize(("value", "text"), [(7, "7"), (-1.5, "-1.5"), (True, "true"), (False, "false")])
def test_numbers_and_booleans_are_written_as_in_json(value: object, text: str) -> None:
    assert filled("https://h.example/${input.a}", a=value) == f"https://h.example/{text}"


@pytest.mark.parametrize(
    ("url", "value", "reason"),
    [
        ("https://h.example/${input.a}", "", "is empty: in the path of a URL"),
        ("https://h.example/${input.a}/x", "..", "has a segment . or .."),
        ("https://h.example/${input.a}", "../admin", "has a segment . or .."),
        ("https://h.example/${input.a}", "a/..", "has a segment . or .."),
        ("https://h.example/${input.a}", "..\\admin", "has a segment . or .."),
        ("https://h.example/.${input.a}/x", ".", "has a segment . or .."),
        ("https://h.example/${input.a}", None, "is no text and no number"),
        ("https://h.example/?q=${input.a}", [1], "is no text and no number"),
        ("https://h.example/?q=${input.a}", {}, "is no text and no number"),
        ("https://h.example/?q=${input.b}", 1, "cannot be resolved"),
    ],
)
def test_a_value_that_would_call_something_else_is_refused(url: str, value: object, reason: str) -> None:
    with pytest.raises(FieldError, match=reason.replace(".", r"\.")):
        filled(url, a=value)


def test_an_empty_value_in_the_query_is_one() -> None:
    assert filled("https://h.example/x?q=${input.a}&r=", a="") == "https://h.example/x?q=&r="


def test_a_secret_of_the_definition_may_pass_through_the_input() -> None:
    """The input of a run marks places of secrets; the worker fills and encodes them."""
    scope = {"input": {"token": "a ${secret:TOKEN}"}}
    url = fill_url("http.url", "https://h.example/?t=${input.token}", scope, DataAllowance(1000))

    assert url == "https://h.example/?t=a%20${secret:TOKEN}"
    assert final_url("http.url", url, lambda _: "x&y") == "https://h.example/?t=a%20x%26y"


@given(st.text(max_size=40))
@example("https://h.example/${secret:A}")
@example("${secret:A}/x")
def test_a_url_that_is_accepted_can_be_filled_whatever_its_secrets_are(text: str) -> None:
    for url in (text, f"https://h.example/{text}", f"https://{text}", f"${{secret:A}}{text}"):
        try:
            check_url("http.url", url)
        except FieldError:
            continue
        value = "https://h.example" if url.startswith("${secret:") else "x/y"
        host = urlsplit(final_url("http.url", url, partial(_value_of_any, value))).hostname
        assert host == urlsplit(url.replace("${secret:A}", value)).hostname


def _value_of_any(value: str, _: str) -> str:
    return value
