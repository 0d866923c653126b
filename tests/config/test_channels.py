"""The settings `channels`: what each kind needs, and errors that never show a credential."""

from typing import Any

import pytest

from gnomon.config.channels import ChannelSettings, channel_as_shown
from gnomon.config.settings import load
from gnomon.core.announcements.channels import ChannelKind
from gnomon.errors import FieldError

TOKEN = "xoxb-very-secret"  # noqa: S105 - of a test
SLACK = {"kind": "slack", "token": TOKEN}
HOOK = {"kind": "webhook", "url": "https://a.b", "secret": TOKEN}
MAIL = {"kind": "email", "url": "smtp://mail.example.com", "sender": "a@b.c"}


def channels(**said: object) -> dict[str, ChannelSettings]:
    return load(file={"channels": said}, environment={"SLACK_TOKEN": TOKEN}).channels


@pytest.mark.req("Z-07")
def test_a_channel_has_a_kind_credentials_a_recipient_and_limits() -> None:
    found = channels(Ops={**SLACK, "token": "${SLACK_TOKEN}", "to": 42, "timeout": "5s", "give_up_ms": 60_000})

    assert found == {
        "ops": ChannelSettings(kind=ChannelKind.SLACK, token=TOKEN, to="42", timeout_ms=5000, give_up_ms=60_000)
    }


def test_there_are_none_by_default() -> None:
    assert load().channels == {}
    assert load(file={"channels": None}).channels == {}


@pytest.mark.req("Z-14")
@pytest.mark.parametrize(
    ("said", "field", "reason"),
    [
        ({"ops": {"token": TOKEN}}, "channels.ops.kind", "must be one of telegram, discord"),
        ({"ops": {"kind": "irc"}}, "channels.ops.kind", "must be one of telegram, discord"),
        ({"ops": {"kind": "slack"}}, "channels.ops.token", "is missing: a channel of kind slack needs it"),
        ({"ops": {"kind": "slack", "token": ""}}, "channels.ops.token", "is missing"),
        (
            {"ops": {**SLACK, "tokken": TOKEN}},
            "channels.ops.tokken",
            "is no setting; did you mean token?",
        ),
        ({"ops": {**SLACK, "secret": TOKEN}}, "channels.ops.secret", "is no setting"),
        ({"ops": {**SLACK, "token": [TOKEN]}}, "channels.ops.token", "is refused"),
        ({"ops": {**SLACK, "url": "http://a:b@c"}}, "channels.ops.url", "must be an http or https URL without"),
        ({"ops": {**SLACK, "to": "no channel"}}, "channels.ops.to", "must be the id of a channel"),
        ({"ops": {**SLACK, "timeout": "1h"}}, "channels.ops.timeout", "must be"),
        ({"ops": {**SLACK, "timeout": "soon"}}, "channels.ops.timeout", "soon"),
        ({"ops": {**SLACK, "tenants": []}}, "channels.ops.tenants", "names no tenant"),
        (
            {"ops": {**SLACK, "token": "${NOT_THERE}"}},
            "channels.ops.token",
            "names NOT_THERE, which",
        ),
        ({"ops": SLACK, "OPS": SLACK}, "channels.ops", "is configured a second time"),
        ({"o p s": SLACK}, "channels", "must be named with a-z"),
        ({"ops": TOKEN}, "channels.ops", "must be a mapping with a kind"),
        ({"hook": {"kind": "webhook", "url": "https://a.b/c"}}, "channels.hook.secret", "is missing"),
        ({"hook": {"kind": "webhook", "url": "a.b", "secret": TOKEN}}, "channels.hook.url", "must be an http"),
        ({"hook": {**HOOK, "to": "x"}}, "channels.hook.to", "means nothing"),
        ({"mail": {**MAIL, "url": "https://a.b"}}, "channels.mail.url", "must be a mail server"),
        ({"mail": {**MAIL, "url": "smtp://ada:secret@a.b"}}, "channels.mail.url", "must be a mail server"),
        ({"mail": {**MAIL, "sender": "Ada"}}, "channels.mail.sender", "must be an e-mail address"),
        ({"mail": {**MAIL, "tls": "ssl"}}, "channels.mail.tls", "is refused"),
        ({"mail": {**MAIL, "url": "smtps://a.b", "tls": "starttls"}}, "channels.mail.tls", "contradicts smtps"),
        ({"mail": {**MAIL, "user": "ada"}}, "channels.mail.user", "needs a password"),
        ({"mail": {**MAIL, "password": TOKEN}}, "channels.mail.user", "a password needs a user"),
        ({"chat": {"kind": "mattermost", "token": TOKEN}}, "channels.chat.url", "is missing"),
    ],
)
def test_bad_values_are_refused_with_field_and_reason_and_without_the_credential(
    said: dict[str, Any], field: str, reason: str
) -> None:
    with pytest.raises(FieldError) as refused:
        channels(**said)

    assert refused.value.field == field
    assert reason in str(refused.value)
    assert TOKEN not in str(refused.value)
    assert TOKEN not in repr(refused.value)


@pytest.mark.parametrize("value", [TOKEN, [TOKEN], 7])
def test_channels_that_are_no_mapping_are_refused(value: object) -> None:
    with pytest.raises(FieldError, match="must be a mapping of names to channels") as refused:
        load(file={"channels": value})
    assert TOKEN not in str(refused.value)


@pytest.mark.req("Z-07")
def test_credentials_are_never_shown_but_the_files_and_secrets_that_hold_them() -> None:
    found = channels(
        ops={**SLACK, "to": "C1"},
        file={**SLACK, "token": "file:/run/token"},
        named={**SLACK, "token": "${secret:SLACK}"},
        hook={"kind": "webhook", "url": f"https://a.b/{TOKEN}?x={TOKEN}", "secret": TOKEN},
        mail={**MAIL, "user": "ada", "password": TOKEN},
        phone={"kind": "apprise", "url": f"ntfy://{TOKEN}"},
    )
    shown = {name: channel_as_shown(one) for name, one in found.items()}

    assert shown["ops"] == {
        "kind": "slack", "token": "[hidden]", "to": "C1", "timeout": "10s", "give_up": "1h", "tenants": ("default",),
    }  # fmt: skip
    assert shown["file"]["token"] == "file:/run/token"  # noqa: S105 - the name of a file
    assert shown["named"]["token"] == "${secret:SLACK}"  # noqa: S105 - a reference
    assert shown["hook"]["url"] == "https://a.b/…"
    assert shown["phone"]["url"] == "[hidden]"
    assert TOKEN not in repr(shown)
    assert TOKEN not in repr(found)
    assert TOKEN not in repr(load(file={"channels": {"ops": SLACK}}))
