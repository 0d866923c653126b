"""Tokens of our own: a key and an admin token in files that only their owner can read."""

import asyncio
import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from gnomon.app.auth import (
    ensure_local_access,
    inspect_token,
    key_path,
    new_token,
    open_token_verifier,
    read_local_token,
)
from gnomon.config.sections import AuthSettings, DatabaseSettings
from gnomon.config.settings import Settings
from gnomon.core.model import DAY_MS
from gnomon.errors import FieldError, FileError, Unauthenticated, UsageError
from gnomon.ports.auth import Caller, Role
from gnomon.testing.clock import VirtualClock
from support.token_issuers import NOW, identity, token

ADMIN = Caller("local-admin", frozenset({Role.ADMIN}))
RACER = """
import sys
from pathlib import Path
from gnomon.adapters.auth.local_key import local_key
print("ready", flush=True)
sys.stdin.readline()
print(local_key(Path(sys.argv[1])).kid)
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(database=DatabaseSettings(url=f"sqlite:///{tmp_path / 'gnomon.db'}"))


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(NOW)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.req("H-20")
async def test_the_first_start_makes_a_key_and_an_admin_token(settings: Settings, clock: VirtualClock) -> None:
    access = ensure_local_access(settings, clock=clock)

    assert access is not None
    shown = read_local_token(settings)
    assert shown is not None
    assert identity(await open_token_verifier(settings, clock=clock).caller(shown)) == ADMIN


def test_the_files_are_beside_the_database_and_their_owners_alone(settings: Settings, tmp_path: Path) -> None:
    ensure_local_access(settings)

    assert {path.name: mode(path) for path in tmp_path.iterdir()} == {"gnomon.db.key": 0o600, "gnomon.db.token": 0o600}


def test_another_start_finds_what_the_first_made(settings: Settings, tmp_path: Path) -> None:
    ensure_local_access(settings)
    before = {path.name: path.read_text() for path in tmp_path.iterdir()}

    ensure_local_access(settings)

    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == before


def test_the_admin_token_is_renewed_when_half_of_its_time_is_over(settings: Settings, clock: VirtualClock) -> None:
    ensure_local_access(settings, clock=clock)
    first = read_local_token(settings)
    clock.advance(183 * DAY_MS)

    ensure_local_access(settings, clock=clock)

    assert read_local_token(settings) != first
    assert inspect_token(settings, read_local_token(settings) or "", clock=clock).refused == ""


def test_the_admin_token_of_another_key_is_replaced(settings: Settings, tmp_path: Path) -> None:
    ensure_local_access(settings)
    first = read_local_token(settings)
    (tmp_path / "gnomon.db.key").unlink()

    ensure_local_access(settings)

    assert read_local_token(settings) != first
    assert mode(tmp_path / "gnomon.db.token") == 0o600


def test_the_hint_says_how_to_use_it(settings: Settings, tmp_path: Path) -> None:
    access = ensure_local_access(settings)

    assert access is not None
    expected = f'curl -H "Authorization: Bearer $(cat {tmp_path}/gnomon.db.token)" http://127.0.0.1:8062/v1/jobs'
    assert access.hint("http://127.0.0.1:8062") == expected


@pytest.mark.guarantee("S24")
@pytest.mark.parametrize("name", ["gnomon.db.key", "gnomon.db.token"])
@pytest.mark.parametrize("others", [0o640, 0o604, 0o620, 0o660])
def test_a_file_that_others_could_read_is_refused(settings: Settings, tmp_path: Path, name: str, others: int) -> None:
    ensure_local_access(settings)
    (tmp_path / name).chmod(others)

    with pytest.raises(FileError, match="can be read by others: chmod 600"):
        ensure_local_access(settings)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '"key"', '{"kty": "oct", "k": "c2VjcmV0"}', '{"crv": "Ed25519", "d": 5}']
)
def test_a_file_that_holds_no_key_is_refused_and_left_alone(settings: Settings, tmp_path: Path, text: str) -> None:
    path = tmp_path / "gnomon.db.key"
    path.write_text(text)
    path.chmod(0o600)

    with pytest.raises(FileError, match="holds no signing key"):
        ensure_local_access(settings)

    assert path.read_text() == text


def test_a_link_is_not_followed(settings: Settings, tmp_path: Path) -> None:
    ensure_local_access(settings)
    (tmp_path / "gnomon.db.key").rename(tmp_path / "elsewhere")
    (tmp_path / "gnomon.db.key").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(FileError, match="cannot be read"):
        ensure_local_access(settings)


def test_a_folder_for_a_key_is_refused(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "gnomon.db.key").mkdir()

    with pytest.raises(FileError, match="is no regular file"):
        ensure_local_access(settings)


def test_processes_that_start_at_once_have_the_same_key(tmp_path: Path) -> None:
    path = tmp_path / "gnomon.db.key"
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"

    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()

    assert len({racer.communicate()[0] for racer in racers}) == 1
    assert [one.name for one in tmp_path.iterdir()] == ["gnomon.db.key"]


@pytest.mark.req("H-20")
@pytest.mark.parametrize("role", Role)
async def test_a_token_can_be_made_for_anybody(settings: Settings, clock: VirtualClock, role: Role) -> None:
    made = new_token(settings, role, subject="ci", tenant="acme", lasts_ms=DAY_MS, clock=clock).token

    assert identity(await open_token_verifier(settings, clock=clock).caller(made)) == Caller(
        "ci", frozenset({role}), "acme"
    )


async def test_a_token_of_another_installation_is_refused(tmp_path: Path, settings: Settings) -> None:
    other = Settings(database=DatabaseSettings(url=f"sqlite:///{tmp_path / 'other.db'}"))
    made = new_token(other, Role.ADMIN, subject="ci", tenant="default", lasts_ms=DAY_MS).token

    with pytest.raises(Unauthenticated, match="no key of its issuer fits it"):
        await open_token_verifier(settings).caller(made)


@pytest.mark.parametrize(
    ("subject", "tenant"), [("", "default"), ("a\nb", "default"), ("x" * 256, "default"), ("a", "A")]
)
def test_a_token_for_nobody_is_not_made(settings: Settings, tmp_path: Path, subject: str, tenant: str) -> None:
    with pytest.raises(FieldError):
        new_token(settings, Role.VIEWER, subject=subject, tenant=tenant, lasts_ms=DAY_MS)

    assert list(tmp_path.iterdir()) == []


def test_with_an_external_issuer_own_tokens_exist_only_if_a_key_file_is_named(tmp_path: Path) -> None:
    database = DatabaseSettings(url=f"sqlite:///{tmp_path / 'gnomon.db'}")
    elsewhere = Settings(database=database, auth=AuthSettings(iam_url="https://iam.example"))
    both = Settings(
        database=database, auth=AuthSettings(iam_url="https://iam.example", key_file=str(tmp_path / "own.key"))
    )

    assert key_path(elsewhere) is None
    assert ensure_local_access(elsewhere) is None
    with pytest.raises(UsageError, match=r"auth\.key_file"):
        new_token(elsewhere, Role.ADMIN, subject="ada", tenant="default", lasts_ms=DAY_MS)
    assert key_path(both) == tmp_path / "own.key"


async def test_beside_an_external_issuer_own_tokens_are_accepted(tmp_path: Path, clock: VirtualClock) -> None:
    auth = AuthSettings(iam_url="http://127.0.0.1:1", key_file=str(tmp_path / "own.key"), audience=("gnomon",))
    settings = Settings(database=DatabaseSettings(url="postgresql://db/gnomon"), auth=auth)
    made = new_token(settings, Role.VIEWER, subject="ci", tenant="default", lasts_ms=DAY_MS, clock=clock).token

    assert (await open_token_verifier(settings, clock=clock).caller(made)).subject == "ci"


def test_the_claims_of_a_token_can_be_inspected(settings: Settings, clock: VirtualClock) -> None:
    made = new_token(settings, Role.VIEWER, subject="ci", tenant="default", lasts_ms=DAY_MS, clock=clock).token

    found = inspect_token(settings, made, clock=clock)

    assert (found.algorithm, found.ours, found.refused, found.claims["sub"]) == ("Ed25519", True, "", "ci")
    clock.advance(DAY_MS)
    assert inspect_token(settings, made, clock=clock).refused == "it has expired"


def test_a_token_of_somebody_else_can_be_looked_at(settings: Settings, clock: VirtualClock) -> None:
    ensure_local_access(settings, clock=clock)

    found = inspect_token(settings, token(), clock=clock)

    assert (found.ours, found.refused) == (False, "its iss is not the trusted issuer")


async def test_many_in_one_process_have_the_same_key(settings: Settings) -> None:
    await asyncio.gather(*(asyncio.to_thread(ensure_local_access, settings) for _ in range(8)))

    path = key_path(settings)
    assert path is not None
    assert json.loads(path.read_text())["crv"] == "Ed25519"
    assert inspect_token(settings, read_local_token(settings) or "").refused == ""
