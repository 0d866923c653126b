"""Credentials for the workers of a NATS server: `gnomon worker enroll`, `revoke` and `enrolled`.

A folder holds the keys that sign credentials, the list of enrolled workers, and the part of the configuration of NATS
that makes it trust these keys. The keys can admit workers, so the folder belongs neither on a server nor on a worker.
To enroll a worker changes nothing in NATS; to revoke one changes the configuration, which NATS then reloads.
"""

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gnomon.adapters.auth.local_key import read_private_file, replace_file
from gnomon.adapters.guarded_files import read_file
from gnomon.adapters.host import SystemClock
from gnomon.adapters.nats.credentials import (
    AccountServices,
    KeyPair,
    KeyRole,
    account_claims,
    operator_claims,
    user_claims,
    user_credentials,
)
from gnomon.core.nats_permissions import (
    OTHER_ACCOUNT,
    SERVER_SERVICES,
    WORKER_SERVICES,
    NatsPermissions,
    server_permissions,
    worker_permissions,
)
from gnomon.core.worker_ids import checked_identity
from gnomon.errors import FieldError, FileError, NotFound
from gnomon.ports.runtime import Clock

_NAME = "gnomon"
_LARGEST_LIST = 16 * 2**20
#: The configuration for NATS holds no secret, and NATS may run as another user.
_READABLE = 0o644
_CONFIGURATION = """\
# Include this file in the configuration of NATS. `gnomon worker enroll` and `gnomon worker revoke` write it.
operator: "{operator}"
system_account: {system}
resolver: MEMORY
resolver_preload: {{
  {servers}: "{servers_claims}"
  {workers}: "{workers_claims}"
  {system}: "{system_claims}"
}}
"""


class EnrolledWorker(Struct, frozen=True, kw_only=True):
    """A worker that was given credentials. Times are in ms."""

    name: str
    pool: str
    #: The public key.
    key: str
    enrolled_at: int
    expires_at: int | None = None
    revoked_at: int | None = None


class EnrolmentFiles(Struct, frozen=True):
    """The files of an enrolment folder: the configuration for NATS, and the credentials of servers and of a worker."""

    configuration: Path
    server: Path
    worker: Path


class _Keys(Struct, frozen=True, kw_only=True):
    """The signing keys, and claims that do not change while NATS runs: it does not allow it, or interrupts requests."""

    operator: str
    #: The account of servers and streams, and that of workers.
    servers: str
    workers: str
    operator_claims: str
    servers_claims: str
    system: str
    system_claims: str


class _Workers(Struct, frozen=True):
    workers: tuple[EnrolledWorker, ...] = ()


def enroll_worker(
    folder: Path, name: str, *, pool: str, lasts_ms: int | None = None, clock: Clock | None = None
) -> EnrolmentFiles:
    """Write credentials for a worker of the pool. The first worker of a folder also creates its keys.

    FieldError if the name is in use: its credentials have to be revoked first.
    """
    identity, permissions = checked_identity(pool, name), worker_permissions(pool, name)
    now = (clock or SystemClock()).now()
    files = _files(folder, name)
    if files.worker == files.server:
        raise FieldError("name", name, "is the name of the credentials of servers")
    with _locked(folder):
        keys, workers = _read_or_create_keys(folder, now), _read_workers(folder)
        if any(one.name == name and one.revoked_at is None for one in workers):
            raise FieldError("name", name, f"is enrolled already: revoke it first, with --keys {folder}")
        user, expires_at = KeyPair.new(KeyRole.USER), None if lasts_ms is None else now + lasts_ms
        _write_credentials(files.worker, keys.workers, user, identity, permissions, now=now, expires_at=expires_at)
        if not files.server.exists():
            server = KeyPair.new(KeyRole.USER)
            permissions = server_permissions(replies_to=OTHER_ACCOUNT)
            _write_credentials(files.server, keys.servers, server, "scheduler", permissions, now=now)
        added = EnrolledWorker(name=name, pool=pool, key=user.public, enrolled_at=now, expires_at=expires_at)
        _write_workers(folder, keys, (*workers, added), now=now)
    return files


def revoke_worker(folder: Path, name: str, *, clock: Clock | None = None) -> EnrolmentFiles:
    """Revoke the credentials of the worker. They are refused once NATS has reloaded its configuration."""
    if not folder.is_dir():
        raise FileError(folder, "is no folder")
    with _locked(folder):
        keys, workers = _read_keys(folder), _read_workers(folder)
        if keys is None or not any(one.name == name and one.revoked_at is None for one in workers):
            raise NotFound("enrolled worker", name)
        now = (clock or SystemClock()).now()
        revoked = (replace(one, revoked_at=one.revoked_at or now) if one.name == name else one for one in workers)
        _write_workers(folder, keys, tuple(revoked), now=now)
    return _files(folder, name)


def enrolled_workers(folder: Path) -> Sequence[EnrolledWorker]:
    """All workers that were given credentials, in the order of their enrolment."""
    if not folder.is_dir():
        raise FileError(folder, "is no folder")
    return _read_workers(folder)


def _files(folder: Path, name: str) -> EnrolmentFiles:
    return EnrolmentFiles(folder / "auth.conf", folder / "server.creds", folder / f"{name}.creds")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other processes from changing the folder."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise FileError(folder, f"cannot be used: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _keys_path(folder: Path) -> Path:
    return folder / "keys.json"


def _workers_path(folder: Path) -> Path:
    return folder / "workers.json"


def _read_keys(folder: Path) -> _Keys | None:
    text = read_private_file(_keys_path(folder))
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=_Keys)
    except msgspec.DecodeError as error:
        raise FileError(_keys_path(folder), f"contains no keys: {error}") from None


def _read_or_create_keys(folder: Path, now: int) -> _Keys:
    found = _read_keys(folder)
    if found is not None:
        return found
    operator = KeyPair.new(KeyRole.OPERATOR)
    servers, workers = KeyPair.new(KeyRole.ACCOUNT), KeyPair.new(KeyRole.ACCOUNT)
    services = AccountServices(SERVER_SERVICES, WORKER_SERVICES, workers.public)
    # NATS needs an account for itself. It has no users, so that its key is not kept.
    system = KeyPair.new(KeyRole.ACCOUNT).public
    keys = _Keys(
        operator=operator.seed,
        servers=servers.seed,
        workers=workers.seed,
        operator_claims=operator_claims(operator, name=_NAME, now=now),
        servers_claims=account_claims(operator, servers.public, name=_NAME, now=now, jetstream=True, services=services),
        system=system,
        system_claims=account_claims(operator, system, name="system", now=now),
    )
    replace_file(_keys_path(folder), _json(keys))
    return keys


def _read_workers(folder: Path) -> tuple[EnrolledWorker, ...]:
    path = _workers_path(folder)
    try:
        return msgspec.json.decode(read_file(path, largest=_LARGEST_LIST, guarded=True), type=_Workers).workers
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise FileError(path, f"cannot be used: {error.strerror or error}") from None
    except msgspec.DecodeError as error:
        raise FileError(path, f"contains no enrolled workers: {error}") from None


def _write_credentials(  # the parts of credentials
    path: Path,
    account_seed: str,
    user: KeyPair,
    name: str,
    permissions: NatsPermissions,
    *,
    now: int,
    expires_at: int | None = None,
) -> None:
    account = KeyPair.from_seed(account_seed)
    claims = user_claims(account, user.public, name=name, permissions=permissions, now=now, expires_at=expires_at)
    replace_file(path, user_credentials(claims, user).text())


def _write_workers(folder: Path, keys: _Keys, workers: Sequence[EnrolledWorker], *, now: int) -> None:
    """Write the list, and the configuration of NATS that follows from it."""
    replace_file(_workers_path(folder), _json(_Workers(tuple(workers))))
    revoked = {one.key: one.revoked_at for one in workers if one.revoked_at is not None}
    configuration = _files(folder, "").configuration
    replace_file(configuration, _configuration(keys, revoked, now))
    configuration.chmod(_READABLE)


def _configuration(keys: _Keys, revoked: Mapping[str, int], now: int) -> str:
    operator = KeyPair.from_seed(keys.operator)
    servers, workers = KeyPair.from_seed(keys.servers).public, KeyPair.from_seed(keys.workers).public
    services = AccountServices(WORKER_SERVICES, SERVER_SERVICES, servers)
    return _CONFIGURATION.format(
        operator=keys.operator_claims,
        system=keys.system,
        system_claims=keys.system_claims,
        servers=servers,
        servers_claims=keys.servers_claims,
        workers=workers,
        workers_claims=account_claims(
            operator, workers, name=f"{_NAME}-workers", now=now, services=services, revoked=revoked
        ),
    )


def _json(data: Struct) -> str:
    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode() + "\n"
