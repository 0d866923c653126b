"""Secrets: resolved when an attempt starts, and never seen again."""

import base64
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.config.sections import SecretsSettings
from gnomon.config.settings import load
from gnomon.core.model import Result
from gnomon.core.runs.outcomes import AttemptOutcome
from gnomon.core.runs.workflow import Isolation
from gnomon.errors import FieldError
from gnomon.runners.context import Context
from gnomon.runners.registry import Functions
from gnomon.runners.secrets import Redactor, SecretSource, redacted_json
from runners.process_functions import FUNCTIONS as ISOLATED
from runners.runner_harness import open_runner

#: With what encodings change: quotes, a slash, signs of base64's alphabets, letters beyond ASCII.
CANARY = 'cana"ry/7?>>~~ÿé+&% xyz'


def source(
    allow: tuple[str, ...] = ("TOKEN",), folder: Path | None = None, environ: Mapping[str, str] | None = None
) -> SecretSource:
    return SecretSource(SecretsSettings(allow=allow, folder=str(folder or "")), {} if environ is None else environ)


def resolved(given_: dict[str, Any], **options: Any) -> object:  # noqa: ANN401 - those of source
    return source(**options).resolve(given_, tenant="default", job="report")[0]


@pytest.mark.req("H-22")
def test_a_secret_is_found_wherever_the_input_names_it() -> None:
    said = {"a": "${secret:TOKEN}", "b": [{"c": "Bearer ${secret:TOKEN}!"}], "d": 7}

    assert resolved(said, environ={"TOKEN": "hunter22"}) == {"a": "hunter22", "b": [{"c": "Bearer hunter22!"}], "d": 7}


def test_an_input_without_secrets_is_left_alone() -> None:
    said = {"a": "${TOKEN}", "b": "secret:TOKEN"}

    assert resolved(said) is said


def test_a_file_comes_before_the_environment_and_loses_its_last_newline(tmp_path: Path) -> None:
    (tmp_path / "TOKEN").write_text("from the file\n")

    said = resolved({"a": "${secret:TOKEN}"}, folder=tmp_path, environ={"TOKEN": "from the environment"})

    assert said == {"a": "from the file"}


def test_secrets_that_the_folder_lacks_are_read_from_the_environment(tmp_path: Path) -> None:
    said = resolved({"a": "${secret:TOKEN}"}, folder=tmp_path, environ={"TOKEN": "from the environment"})

    assert said == {"a": "from the environment"}


@pytest.mark.req("H-22")
def test_only_allowed_names_are_looked_for(tmp_path: Path) -> None:
    with pytest.raises(FieldError, match="OTHER' is not allowed"):
        resolved({"a": "${secret:OTHER}"}, folder=tmp_path, environ={"OTHER": "hunter22"})


@pytest.mark.parametrize("name", ["", ".", "..", "../TOKEN", "a/b", "a b"])
def test_a_text_that_names_no_secret_is_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "TOKEN").write_text("hunter22")
    said = {"a": f"${{secret:{name}}}"}

    assert resolved(said, allow=("../TOKEN", ".", ".."), folder=tmp_path / "inside") == said


def test_a_folder_is_no_secret(tmp_path: Path) -> None:
    (tmp_path / "TOKEN").mkdir()

    with pytest.raises(FieldError, match="is missing"):
        resolved({"a": "${secret:TOKEN}"}, folder=tmp_path)


@pytest.mark.req("H-22")
@pytest.mark.parametrize(
    ("rule", "users"),
    [
        ("TOKEN", {("default", "report"), ("default", "other")}),
        ("TOKEN=acme", {("acme", "report"), ("acme", "other")}),
        ("TOKEN=acme/report", {("acme", "report")}),
        ("TOKEN=*", {("default", "report"), ("default", "other"), ("acme", "report"), ("acme", "other")}),
        ("TOKEN=*/report", {("default", "report"), ("acme", "report")}),
        ("OTHER=acme", set()),
    ],
)
def test_a_secret_belongs_to_tenants_and_jobs(rule: str, users: set[tuple[str, str]]) -> None:
    secrets = source(allow=(rule,), environ={"TOKEN": "hunter22"})

    def allowed(tenant: str, job: str) -> bool:
        try:
            return secrets.resolve({"a": "${secret:TOKEN}"}, tenant=tenant, job=job)[0] == {"a": "hunter22"}
        except FieldError as error:
            return "is not allowed" not in str(error)

    tried = {(tenant, job) for tenant in ("default", "acme") for job in ("report", "other")}
    assert {user for user in tried if allowed(*user)} == users


@pytest.mark.parametrize("rule", ["", "A B", "A=", "A=Acme", "A=acme/", "A=acme/x/y", "=acme"])
def test_a_rule_that_cannot_be_read_is_named(rule: str) -> None:
    with pytest.raises(FieldError, match=r"secrets\.allow") as caught:
        load(flags={"secrets.allow": [rule]})

    assert caught.value.field == "secrets.allow"


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("hunter22")
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "TOKEN").symlink_to(tmp_path / "outside")

    with pytest.raises(FieldError, match="'TOKEN' is missing"):
        resolved({"a": "${secret:TOKEN}"}, folder=tmp_path / "inside")


def test_a_link_inside_the_folder_is_followed_as_mounted_secrets_have_them(tmp_path: Path) -> None:
    (tmp_path / "..data").mkdir()
    (tmp_path / "..data" / "TOKEN").write_text("hunter22")
    (tmp_path / "TOKEN").symlink_to(Path("..data") / "TOKEN")

    assert resolved({"a": "${secret:TOKEN}"}, folder=tmp_path) == {"a": "hunter22"}


def test_a_secret_that_could_not_be_kept_is_refused() -> None:
    with pytest.raises(FieldError, match="shorter than 4") as caught:
        resolved({"a": "${secret:TOKEN}"}, environ={"TOKEN": "zq9"})

    assert "zq9" not in str(caught.value)


def test_a_secret_that_is_no_text_is_refused() -> None:
    with pytest.raises(FieldError, match="is not text"):
        resolved({"a": "${secret:TOKEN}"}, environ={"TOKEN": "hunter\udcff22"})


@pytest.mark.parametrize("isolation", list(Isolation))
async def test_a_missing_secret_ends_the_task(isolation: Isolation) -> None:
    async with open_runner(ISOLATED, secrets=SecretsSettings(allow=("TOKEN",))) as harness:
        outcome = await harness.run("leaks", {"token": "${secret:TOKEN}", "how": "print"}, isolation=isolation)

    assert (outcome.result, outcome.error) == (Result.GAVE_UP, "secret: 'TOKEN' is missing")


# ---- what leaves the runner ------------------------------------------------------------------------


def forms_of(secret: str) -> list[str]:
    raw = secret.encode()
    forms = [secret, raw.hex(), raw.hex().upper(), quote(secret, safe=""), quote(secret), json.dumps(secret)[1:-1]]
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        whole = encode(raw).decode().rstrip("=")
        # A character that the text beside it shares is not the secret's alone.
        forms += [whole[:-1], encode(b"a" + raw).decode()[2:].rstrip("=")[:-1]]
        forms += [encode(b"aa" + raw).decode()[3:].rstrip("=")[:-1]]
    return forms


def leaks(outcome: AttemptOutcome, secret: str) -> list[str]:
    shown = [outcome.error or "", (outcome.output or b"").decode(), *(line.text for line in outcome.logs)]
    text = "\n".join([*shown, *(str(msgspec.json.decode(outcome.output)) for _ in [1] if outcome.output)])
    return [form for form in forms_of(secret) if form in text]


@pytest.mark.req("H-22")
@pytest.mark.guarantee("S24")
@pytest.mark.parametrize("isolation", list(Isolation))
@pytest.mark.parametrize("how", ["return", "raise", "log", "print"])
async def test_no_form_of_a_secret_leaves_the_runner(isolation: Isolation, how: str) -> None:
    allowed = SecretsSettings(allow=("TOKEN",))
    async with open_runner(ISOLATED, secrets=allowed, environ={"TOKEN": CANARY}) as harness:
        outcome = await harness.run("leaks", {"token": "${secret:TOKEN}", "how": how}, isolation=isolation)

    assert outcome.result is (Result.FAILED if how == "raise" else Result.SUCCEEDED)
    assert leaks(outcome, CANARY) == []
    if how != "print" or isolation is Isolation.PROCESS:
        assert "[secret TOKEN]" in f"{outcome.error}{outcome.output!r}{outcome.logs}"


@pytest.mark.guarantee("S24")
async def test_other_handlers_do_not_see_it_either(caplog: pytest.LogCaptureFixture) -> None:
    functions = Functions()

    @functions.function
    async def logs(token: str) -> None:
        try:
            int(token)
        except ValueError:
            logging.getLogger("any.name").exception("got %s", token)

    allowed = SecretsSettings(allow=("TOKEN",))
    async with open_runner(functions, secrets=allowed, environ={"TOKEN": CANARY}) as harness:
        await harness.run("logs", {"token": "${secret:TOKEN}"})

    assert "got [secret TOKEN]" in caplog.text
    assert "invalid literal" in caplog.text
    assert CANARY not in caplog.text


@pytest.mark.guarantee("S24")
@pytest.mark.parametrize("isolation", list(Isolation))
async def test_an_input_that_does_not_fit_is_shown_as_it_was_written(isolation: Isolation) -> None:
    allowed = SecretsSettings(allow=("TOKEN",))
    async with open_runner(ISOLATED, secrets=allowed, environ={"TOKEN": "hunter22" * 30}) as harness:
        outcome = await harness.run("plain", {"number": "${secret:TOKEN}"}, isolation=isolation)

    assert outcome.error == "number: '${secret:TOKEN}' is refused: Expected `int`, got `str`"


@pytest.mark.guarantee("S24")
async def test_a_line_is_cut_after_its_secrets_are_gone() -> None:
    functions = Functions()

    @functions.function
    async def logs(ctx: Context, token: str) -> None:
        ctx.log("x" * 1990 + token)

    allowed = SecretsSettings(allow=("TOKEN",))
    async with open_runner(functions, secrets=allowed, environ={"TOKEN": "hunter22" * 5}) as harness:
        outcome = await harness.run("logs", {"token": "${secret:TOKEN}"})

    assert outcome.logs[0].text == "x" * 1990 + "[secret T…"


@pytest.mark.guarantee("S24")
async def test_a_line_of_the_program_that_holds_it_is_not_shown_with_it() -> None:
    functions = Functions()

    @functions.function
    async def fails(token: str) -> None:
        assert not token, "hunter22"

    allowed = SecretsSettings(allow=("TOKEN",))
    async with open_runner(functions, secrets=allowed, environ={"TOKEN": "hunter22"}) as harness:
        outcome = await harness.run("fails", {"token": "${secret:TOKEN}"})

    assert outcome.error is not None
    assert 'assert not token, "[secret TOKEN]"' in outcome.error


@pytest.mark.guarantee("S24")
def test_every_long_line_of_a_secret_is_one() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADAN\nBgkqhkiG9w0B\n-----END KEY-----"
    redact = Redactor({"KEY": key})

    assert redact("read MIIEvQIBADAN and BgkqhkiG9w0B") == "read [secret KEY] and [secret KEY]"
    assert redact(key) == "[secret KEY]"


def test_a_secret_that_a_cut_went_through_goes_as_a_whole() -> None:
    assert Redactor({"KEY": "hunter22"}).without_beginnings("it is hunte") == "it is [secret KEY]"


def test_a_text_without_a_beginning_is_left_alone() -> None:
    assert Redactor({"KEY": "hunter22"}).without_beginnings("it is a hun") == "it is a hun"


def test_a_number_that_is_a_secret_leaves_json_behind() -> None:
    redact = Redactor({"PIN": "12345678"})

    assert msgspec.json.decode(redacted_json(b'{"pin":12345678,"other":[1,true,null]}', redact)) == {
        "pin": "[secret PIN]",
        "other": [1, True, None],
    }


def test_a_secret_that_the_structure_spells_takes_the_output_with_it() -> None:
    redact = Redactor({"ODD": '"a":["b"'})

    assert redacted_json(b'{"a":["b"]}', redact) == b'{"redacted":true}'


@pytest.mark.guarantee("S24")
@given(secret=st.text(min_size=4, max_size=30), before=st.binary(max_size=5), after=st.binary(max_size=5))
def test_base64_of_anything_around_a_secret_shows_none_of_its_insides(secret: str, before: bytes, after: bytes) -> None:
    try:
        raw = secret.encode()
    except UnicodeEncodeError:
        return
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        shown = Redactor({"S": secret})(encode(before + raw + after).decode())
        assert "[secret S]" in shown
