"""Every kind of channel over real sockets: its exact requests, and the meaning of the answers."""

import asyncio
import base64
import hashlib
import hmac
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, Session
from msgspec.structs import replace

from contracts.store import NOON
from core.announcements.test_text import ONE
from gnomon.app.channels import open_channels
from gnomon.config.settings import load
from gnomon.core.announcements.model import AnnouncementFacts, AnnounceMoment
from gnomon.errors import ChannelFailed, ChannelRefused
from gnomon.ports.announcements import Channel, ChannelMessage
from support.certificates import Authority
from support.channel_server import CUT_OFF, SILENT, ChannelServer, ScriptedAnswer, channel_server

TOKEN = "123456:AAF-very_secret"  # noqa: S105 - of a test
CHAT = {
    "telegram": {"to": "-1001"},
    "discord": {"to": "42"},
    "slack": {"to": "C024BE91L"},
    "mattermost": {"to": "abc123"},
    "webhook": {"secret": "whsec_" + base64.b64encode(b"key").decode()},
}


@pytest.fixture
async def service() -> AsyncIterator[ChannelServer]:
    async with channel_server() as running:
        yield running


def channel(kind: str, url: str, **fields: Any) -> Channel:  # noqa: ANN401 - any setting of a channel
    credentials = {} if kind in ("webhook", "email", "apprise") else {"token": TOKEN}
    said = {"kind": kind, "url": url, **credentials, **CHAT.get(kind, {}), **fields}
    return open_channels(load(file={"channels": {"ops": said}}))["ops"]


def message(channel: Channel, text: str = "disk full", *, to: str = "", **changes: Any) -> ChannelMessage:  # noqa: ANN401
    facts = AnnouncementFacts(error="disk full", failures=2)
    one = replace(ONE, recipient=to, moment=AnnounceMoment.FAILURE, facts=facts, **changes)
    return ChannelMessage(announcement=one, recipient=channel.recipient_for(one), text=text, now=NOON)


async def sent(kind: str, service: ChannelServer, *, to: str = "", **fields: Any) -> None:  # noqa: ANN401
    made = channel(kind, service.url, **fields)
    await made.send(message(made, to=to))


# ---- requests ------------------------------------------------------------------------------------


@pytest.mark.req("Z-07")
@pytest.mark.parametrize(
    ("kind", "to", "path", "authorization", "body"),
    [
        (
            "telegram",
            "",
            f"/bot{TOKEN}/sendMessage",
            None,
            {"chat_id": "-1001", "text": "disk full", "parse_mode": "Markdown"},
        ),
        (
            "telegram",
            "@news:77",
            f"/bot{TOKEN}/sendMessage",
            None,
            {"chat_id": "@news", "message_thread_id": 77, "text": "disk full", "parse_mode": "Markdown"},
        ),
        (
            "discord",
            "",
            "/api/v10/channels/42/messages",
            f"Bot {TOKEN}",
            {"content": "disk full", "allowed_mentions": {"parse": []}},
        ),
        ("slack", "", "/api/chat.postMessage", f"Bearer {TOKEN}", {"channel": "C024BE91L", "text": "disk full"}),
        ("mattermost", "", "/api/v4/posts", f"Bearer {TOKEN}", {"channel_id": "abc123", "message": "disk full"}),
        (
            "mattermost",
            "abc:root9",
            "/api/v4/posts",
            f"Bearer {TOKEN}",
            {"channel_id": "abc", "message": "disk full", "root_id": "root9"},
        ),
    ],
)
async def test_a_chat_gets_the_request_that_its_service_defines(
    service: ChannelServer, kind: str, to: str, path: str, authorization: str | None, body: dict[str, object]
) -> None:
    await sent(kind, service, to=to)

    [request] = service.requests
    assert request.path == path
    assert request.json == body
    assert request.headers.get("Authorization") == authorization
    assert request.headers["Content-Type"].startswith("application/json")


async def test_the_address_of_mattermost_may_end_in_slashes(service: ChannelServer) -> None:
    made = channel("mattermost", f"{service.url}/chat//")
    await made.send(message(made))

    assert service.requests[0].path == "/chat/api/v4/posts"


@pytest.mark.req("Z-07")
async def test_telegram_gets_plain_text_if_it_refuses_markdown(service: ChannelServer) -> None:
    service.answers = [ScriptedAnswer(400, {"ok": False, "description": "can't parse entities"})]

    await sent("telegram", service, to="5:7")

    markdown, plain = service.requests
    assert markdown.json["parse_mode"] == "Markdown"
    assert plain.json == {"chat_id": "5", "message_thread_id": 7, "text": "disk full"}


async def test_the_error_of_telegram_carries_both_answers(service: ChannelServer) -> None:
    service.answers = [
        ScriptedAnswer(400, {"description": "can't parse entities"}),
        ScriptedAnswer(403, {"description": "bot was blocked"}),
    ]

    with pytest.raises(ChannelRefused) as refused:
        await sent("telegram", service)

    assert str(refused.value) == "answered 403: bot was blocked (with Markdown: answered 400: can't parse entities)"


@pytest.mark.req("Z-07")
@pytest.mark.parametrize("secret", ["whsec_" + base64.b64encode(b"a key of 32 bytes, or something").decode(), "plain"])
async def test_a_webhook_is_signed_as_standard_webhooks_defines_it(service: ChannelServer, secret: str) -> None:
    await sent("webhook", service, secret=secret)

    [request] = service.requests
    name, stamp = request.headers["webhook-id"], request.headers["webhook-timestamp"]
    key = base64.b64decode(secret.removeprefix("whsec_")) if secret.startswith("whsec_") else secret.encode()
    digest = hmac.new(key, f"{name}.{stamp}.".encode() + request.body, hashlib.sha256).digest()
    assert request.headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"
    assert (name, stamp) == ("ann_1_0", str(NOON // 1000))
    assert request.json["type"] == "job.failure"
    data = request.json["data"]
    assert (data["job"], data["execution_id"], data["text"]) == ("backup", "run_1", "disk full")
    assert (data["error"], data["failures"], data["moment"]) == ("disk full", 2, "failure")


def test_the_signature_is_that_of_the_example_in_the_standard() -> None:
    """The example of the page https://www.standardwebhooks.com."""
    from gnomon.adapters.channels.webhook import webhook_signature

    body = b'{"test": 2432232314}'
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105 - of the standard

    assert webhook_signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body) == (
        "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    )


async def test_a_secret_that_is_no_base64_is_refused(service: ChannelServer) -> None:
    with pytest.raises(ChannelRefused, match="whsec_"):
        await sent("webhook", service, secret="whsec_!!!")  # noqa: S106 - of a test
    assert service.requests == []


# ---- answers -------------------------------------------------------------------------------------

OVER_HTTP = ("telegram", "discord", "slack", "mattermost", "webhook")


@pytest.mark.req("Z-07")
@pytest.mark.parametrize("kind", OVER_HTTP)
@pytest.mark.parametrize("status", [408, 429, 500, 503])
async def test_an_answer_that_may_be_better_later_is_a_failure(service: ChannelServer, kind: str, status: int) -> None:
    service.usual = ScriptedAnswer(status)

    with pytest.raises(ChannelFailed, match=f"answered {status}"):
        await sent(kind, service)


@pytest.mark.parametrize("kind", OVER_HTTP)
@pytest.mark.parametrize("status", [301, 307, 400, 401, 403, 404, 410, 413])
async def test_every_other_answer_is_a_refusal(service: ChannelServer, kind: str, status: int) -> None:
    service.usual = ScriptedAnswer(status, {"message": "no"}, {"Location": "/elsewhere"})

    with pytest.raises(ChannelRefused, match=f"answered {status}"):
        await sent(kind, service)

    assert not any("elsewhere" in request.path for request in service.requests)


@pytest.mark.parametrize(
    ("answer", "asked_ms"),
    [
        (ScriptedAnswer(429, None, {"Retry-After": "7"}), 7000),
        (ScriptedAnswer(503, None, {"Retry-After": "Mon, 02 Mar 2026 12:00:30 GMT"}), 30_000),
        (ScriptedAnswer(429, {"retry_after": 1.25}), 1250),
        (ScriptedAnswer(429, {"ok": False, "parameters": {"retry_after": 9}}, {"Retry-After": "3"}), 9000),
        (ScriptedAnswer(429, None, {"Retry-After": "soon"}), None),
        (ScriptedAnswer(429, {"retry_after": -5}, {"Retry-After": "99999999999"}), 86_400_000),
        (ScriptedAnswer(500), None),
    ],
)
async def test_the_pause_that_a_service_asks_for_is_read(
    service: ChannelServer, answer: ScriptedAnswer, asked_ms: int | None
) -> None:
    service.usual = answer

    with pytest.raises(ChannelFailed) as failed:
        await sent("discord", service)

    assert failed.value.retry_after_ms == asked_ms


async def test_telegram_is_not_asked_twice_when_it_wants_a_pause(service: ChannelServer) -> None:
    service.usual = ScriptedAnswer(429, {"parameters": {"retry_after": 9}})

    with pytest.raises(ChannelFailed):
        await sent("telegram", service)

    assert len(service.requests) == 1


@pytest.mark.req("Z-07")
@pytest.mark.parametrize(
    ("answer", "error", "kind"),
    [
        ({"ok": False, "error": "channel_not_found"}, "the error channel_not_found", ChannelRefused),
        ({"ok": False, "error": "ratelimited"}, "the error ratelimited", ChannelFailed),
        ({"ok": False}, "ok is false", ChannelRefused),
        ({"ok": "yes"}, "ok is false", ChannelRefused),
        (["ok"], "not from Slack", ChannelFailed),
    ],
)
async def test_slack_says_no_with_status_200(
    service: ChannelServer, answer: object, error: str, kind: type[Exception]
) -> None:
    service.usual = ScriptedAnswer(json=answer)

    with pytest.raises(kind, match=error):
        await sent("slack", service)


@pytest.mark.parametrize("kind", OVER_HTTP)
@pytest.mark.parametrize(("script", "error"), [(SILENT, "no answer within 0.2 s"), (CUT_OFF, "cannot be called")])
async def test_a_service_that_is_silent_or_hangs_up_is_a_failure(
    service: ChannelServer, kind: str, script: ScriptedAnswer, error: str
) -> None:
    service.usual = script

    with pytest.raises(ChannelFailed, match=error):
        await sent(kind, service, timeout="200ms")


async def test_a_service_that_is_not_there_is_a_failure() -> None:
    made = channel("slack", "http://127.0.0.1:9")

    with pytest.raises(ChannelFailed, match="cannot be called: ClientConnectorError"):
        await made.send(message(made))


# ---- credentials ---------------------------------------------------------------------------------


@pytest.mark.req("Z-07")
@pytest.mark.parametrize("kind", OVER_HTTP)
async def test_no_token_is_in_an_error_even_if_the_service_repeats_it(service: ChannelServer, kind: str) -> None:
    fields = {"secret": TOKEN} if kind == "webhook" else {}
    for script in (
        ScriptedAnswer(403, {"message": f"bad token {TOKEN}"}),
        ScriptedAnswer(500, {"description": f"at /bot{TOKEN}/sendMessage"}),
        ScriptedAnswer(200, {"ok": False, "error": TOKEN}),
        SILENT,
        CUT_OFF,
    ):
        service.usual = script
        if kind != "slack" and script.status == 200 and not (script.silent or script.cut_off):
            continue
        with pytest.raises((ChannelFailed, ChannelRefused)) as failed:
            await sent(kind, service, timeout="200ms", **fields)
        assert TOKEN not in repr(failed.value)
        assert failed.value.__cause__ is None
        assert failed.value.__suppress_context__


async def test_a_token_comes_from_a_file_or_a_secret_and_is_read_anew(
    service: ChannelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    file.chmod(0o600)
    monkeypatch.setenv("SLACK_TOKEN", "from the environment")
    by_file = channel("slack", service.url, token=f"file:{file}")
    by_secret = channel("slack", service.url, token="${secret:SLACK_TOKEN}")  # noqa: S106 - a reference

    await by_file.send(message(by_file))
    file.write_text("second\n")
    await by_file.send(message(by_file))
    await by_secret.send(message(by_secret))

    assert [one.headers["Authorization"] for one in service.requests] == [
        "Bearer first",
        "Bearer second",
        "Bearer from the environment",
    ]


async def test_a_token_that_cannot_be_read_is_a_failure_that_names_its_setting(
    service: ChannelServer, tmp_path: Path
) -> None:
    open_to_all = tmp_path / "token"
    open_to_all.write_text("secret")
    open_to_all.chmod(0o644)
    for token, reason in (
        (f"file:{tmp_path / 'missing'}", "No such file"),
        (f"file:{open_to_all}", "OSError"),
        ("${secret:NOT_THERE}", "is missing"),
    ):
        made = channel("slack", service.url, token=token)
        with pytest.raises(ChannelFailed, match=r"channels\.ops\.token cannot be read") as failed:
            await made.send(message(made))
        assert reason in str(failed.value)
    assert service.requests == []


# ---- recipients ----------------------------------------------------------------------------------


def test_the_recipient_is_that_of_the_announcement_or_else_that_of_the_channel() -> None:
    made = channel("slack", "http://127.0.0.1:9", to="C1")

    assert made.recipient_for(replace(ONE, recipient="C2")) == "C2"
    assert made.recipient_for(replace(ONE, recipient="")) == "C1"


def test_a_channel_whose_settings_have_changed_refuses_what_it_cannot_send() -> None:
    """A job was checked when it was added; the settings may be others by now."""
    limited = channel("slack", "http://127.0.0.1:9", tenants=["second"])
    without = channel("slack", "http://127.0.0.1:9", to="")

    with pytest.raises(ChannelRefused, match="tenant default may not use it"):
        limited.recipient_for(ONE)
    with pytest.raises(ChannelRefused, match="names no recipient"):
        without.recipient_for(replace(ONE, recipient=""))
    with pytest.raises(ChannelRefused, match="must be the id of a channel"):
        without.recipient_for(replace(ONE, recipient="../admin?x=1"))


# ---- e-mail --------------------------------------------------------------------------------------


class Mailbox:
    """Receives mail, or refuses it as the test sets it."""

    def __init__(self) -> None:
        self.mails: list[tuple[Envelope, Message]] = []
        self.refused: dict[str, str] = {}
        self.answer = "250 OK"

    async def handle_RCPT(  # noqa: N802 - named by the library
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        del server, session, options
        if address in self.refused:
            return self.refused[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802 - as above
        from email import message_from_bytes, policy

        del server, session
        assert isinstance(envelope.content, bytes)
        if self.answer.startswith("250"):
            self.mails.append((envelope, message_from_bytes(envelope.content, policy=policy.default)))
        return self.answer


@asynccontextmanager
async def mail_server(
    box: Mailbox,
    *,
    tls: ssl.SSLContext | None = None,
    **options: Any,  # noqa: ANN401 - those of the library
) -> AsyncIterator[str]:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: SMTP(box, hostname="localhost", **options), "127.0.0.1", 0, ssl=tls)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def server_context(authority: Authority) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.server())
    return context


MAIL = {"sender": "gnomon@example.com", "to": "ada@example.com, bob@example.com"}


@pytest.mark.req("Z-07")
async def test_an_announcement_is_an_e_mail_with_the_job_in_its_subject() -> None:
    box = Mailbox()
    async with mail_server(box) as address:
        made = channel("email", f"smtp://{address}", tls="none", **MAIL)
        await made.send(message(made, "disk full\nwörtlich 😀"))
        await made.send(message(made, "disk full\nwörtlich 😀"))

    (envelope, mail), (_, again) = box.mails
    assert (envelope.mail_from, envelope.rcpt_tos) == ("gnomon@example.com", ["ada@example.com", "bob@example.com"])
    assert mail["Subject"] == "backup failed"
    assert mail["From"] == "gnomon@example.com"
    assert mail["Auto-Submitted"] == "auto-generated"
    assert mail["Message-ID"] == again["Message-ID"] == "<ann_1_0@example.com>"
    assert mail.get_content().splitlines() == ["disk full", "wörtlich 😀"]  # type: ignore[attr-defined]
    assert not mail.is_multipart()


async def test_a_mail_server_is_spoken_to_by_starttls_unless_the_settings_choose_otherwise(
    authority: Authority,
) -> None:
    box = Mailbox()

    def authenticate(server: SMTP, session: Session, envelope: Envelope, kind: str, data: Any) -> AuthResult:  # noqa: ANN401
        del server, session, envelope, kind
        return AuthResult(success=(data.login, data.password) == (b"gnomon", b"s3cret"), handled=False)

    options: dict[str, Any] = {
        "authenticator": authenticate,
        "auth_required": True,
        "tls_context": server_context(authority),
    }
    async with mail_server(box, **options) as address:
        fields = {"ca_file": authority.file, "user": "gnomon", **MAIL}
        made = channel("email", f"smtp://{address}", password="s3cret", **fields)  # noqa: S106 - of a test
        await made.send(message(made))
        wrong = channel("email", f"smtp://{address}", password="another", **fields)  # noqa: S106 - of a test
        with pytest.raises(ChannelRefused, match="the mail server answered 535") as refused:
            await wrong.send(message(wrong))

    assert len(box.mails) == 1
    assert "another" not in str(refused.value)


async def test_a_mail_server_may_speak_tls_from_the_first_byte_on(authority: Authority) -> None:
    box = Mailbox()
    async with mail_server(box, tls=server_context(authority)) as address:
        made = channel("email", f"smtps://{address}", ca_file=authority.file, **MAIL)
        await made.send(message(made))
        stranger = channel("email", f"smtps://{address}", timeout="2s", **MAIL)
        with pytest.raises(
            ChannelFailed, match=r"the mail cannot be sent: SMTPConnectError.*CERTIFICATE_VERIFY_FAILED"
        ):
            await stranger.send(message(stranger))

    assert len(box.mails) == 1


async def test_a_mail_server_without_tls_is_not_trusted_with_the_mail() -> None:
    box = Mailbox()
    async with mail_server(box) as address:
        made = channel("email", f"smtp://{address}", **MAIL)
        with pytest.raises(ChannelFailed, match="STARTTLS"):
            await made.send(message(made))

    assert box.mails == []


@pytest.mark.parametrize(("answer", "kind"), [("451 try later", ChannelFailed), ("554 no spam here", ChannelRefused)])
async def test_the_answer_of_a_mail_server_says_whether_to_try_again(answer: str, kind: type[Exception]) -> None:
    box = Mailbox()
    box.answer = answer
    async with mail_server(box) as address:
        made = channel("email", f"smtp://{address}", tls="none", **MAIL)
        with pytest.raises(kind, match=f"the mail server answered {answer[:3]}: {answer[4:]}"):
            await made.send(message(made))


async def test_refused_recipients_are_reported_and_the_others_get_no_second_mail() -> None:
    box = Mailbox()
    async with mail_server(box) as address:
        made = channel("email", f"smtp://{address}", tls="none", **MAIL)
        box.refused = {"bob@example.com": "550 no such user"}
        with pytest.raises(ChannelRefused, match="1 of 2 recipients were refused; the others have it"):
            await made.send(message(made))
        box.refused["ada@example.com"] = "450 later"
        with pytest.raises(ChannelRefused, match="no recipient was accepted"):
            await made.send(message(made))
        box.refused["bob@example.com"] = "450 later"
        with pytest.raises(ChannelFailed, match="answered 450"):
            await made.send(message(made))

    assert len(box.mails) == 1


async def test_a_mail_server_that_is_silent_is_a_failure() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        made = channel("email", f"smtp://127.0.0.1:{port}", tls="none", timeout="200ms", **MAIL)
        with pytest.raises(ChannelFailed, match=r"no answer within 0\.2 s|SMTP.*Timeout"):
            await made.send(message(made))


# ---- apprise -------------------------------------------------------------------------------------

#: The library imports a deprecated module of Python.
WITH_APPRISE = pytest.mark.filterwarnings("ignore:'imghdr':DeprecationWarning")


@WITH_APPRISE
@pytest.mark.req("Z-07")
async def test_a_service_of_apprise_gets_the_title_and_the_text(service: ChannelServer) -> None:
    made = channel("apprise", service.url.replace("http://", "json://") + "/hook")
    await made.send(message(made))

    [request] = service.requests
    assert request.path == "/hook"
    assert (request.json["title"], request.json["message"]) == ("backup failed", "disk full")
    assert request.json["type"] == "failure"
    assert request.json["attachments"] == []


@WITH_APPRISE
async def test_a_service_of_apprise_that_fails_is_tried_again_and_its_url_is_hidden(service: ChannelServer) -> None:
    service.usual = ScriptedAnswer(500)
    made = channel("apprise", service.url.replace("http://", f"json://user:{TOKEN.replace(':', '')}@") + "/hook")
    with pytest.raises(ChannelFailed, match="the service did not take it"):
        await made.send(message(made))
    unknown = channel("apprise", f"nothing://{TOKEN.replace(':', '')}")
    with pytest.raises(ChannelRefused, match="its url is none that Apprise knows") as refused:
        await unknown.send(message(unknown))
    assert TOKEN.replace(":", "") not in str(refused.value)
