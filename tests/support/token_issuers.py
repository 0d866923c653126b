"""Issuers of tokens for tests: keys of every kind, tokens right and wrong, and a server that publishes keys."""

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Any, Self

from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

from gnomon.ports.auth import Caller

NOW = 1_772_452_800_000  # 2026-03-02T12:00:00Z
SECOND = NOW // 1000
LASTS_SECONDS = 30 * 24 * 3600
ISSUER = "https://iam.example"
AnyKey = RSAKey | ECKey | OKPKey | OctKey


@cache
def rsa(name: str = "r1", bits: int = 2048) -> RSAKey:
    del name
    return RSAKey.generate_key(bits)


@cache
def ec(name: str = "e1", curve: str = "P-256") -> ECKey:
    del name
    return ECKey.generate_key(curve)


@cache
def okp(name: str = "o1") -> OKPKey:
    del name
    return OKPKey.generate_key("Ed25519")


def public_jwk(key: AnyKey, kid: str | None = None, **more: object) -> dict[str, Any]:
    """The key as an issuer publishes it."""
    shown: dict[str, Any] = dict(key.as_dict(private=False))
    return shown | ({} if kid is None else {"kid": kid}) | more


def token_part(said: object) -> str:
    """A part of a token."""
    plain = said if isinstance(said, bytes) else json.dumps(said, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(plain).rstrip(b"=").decode()


def identity(caller: Caller) -> Caller:
    """The caller without what is particular to its token."""
    return Caller(caller.subject, caller.roles, caller.tenant)


def claims(**changes: object) -> dict[str, Any]:
    """The claims of a valid token; a change to None omits a claim."""
    usual: dict[str, Any] = {
        "iss": ISSUER,
        "sub": "ada",
        "aud": "gnomon",
        "roles": ["scheduler-operator"],
        "iat": SECOND,
        "exp": SECOND + LASTS_SECONDS,
    }
    return {name: value for name, value in (usual | changes).items() if value is not None}


def signature(key: AnyKey, algorithm: str, signed: str) -> bytes:
    return JWSRegistry(algorithms=[algorithm]).get_alg(algorithm).sign(signed.encode(), key)


def token(
    said: object = None, *, key: AnyKey | None = None, alg: str = "RS256", kid: str | None = "r1", **header: object
) -> str:
    """A token with these claims, signed as the header says."""
    named = {"alg": alg} | ({} if kid is None else {"kid": kid}) | header
    signed = f"{token_part(named)}.{token_part(claims() if said is None else said)}"
    return f"{signed}.{token_part(signature(key or rsa(), alg, signed))}"


Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


class KeyServer:
    """An issuer's HTTP server with the faults that a test sets."""

    def __init__(self, *keys: Mapping[str, Any]) -> None:
        self.keys = list(keys)
        self.requests = 0
        #: The fault instead of a response with the keys.
        self.instead: Answer | None = None
        self.asked = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/jwks.json"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            self.requests += 1
            self.asked.set()
            await (self.instead or self._keys)(writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _keys(self, writer: asyncio.StreamWriter) -> None:
        await answer(json.dumps({"keys": self.keys}).encode())(writer)


def answer(body: bytes, status: str = "200 OK", *headers: str) -> Answer:
    """Set the response of the server."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers, "", ""]

    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write("\r\n".join(lines).encode() + body)

    return write
