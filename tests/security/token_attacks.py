"""Attacks with tokens that the key of the installation has signed, and with others that only claim that."""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from pathlib import Path
from time import time
from typing import Any

from joserfc.jwk import OKPKey

from gnomon.adapters.auth.local_key import LOCAL_ISSUER
from gnomon.app.auth import key_path
from support.hostile_target import HostileTarget
from support.token_issuers import okp, public_jwk, signature, token_part

_ALGORITHM = "Ed25519"
#: Makes a token with the key of the target.
TokenMaker = Callable[["Forger"], str]


class Forger:
    """Makes tokens like those of the installation, each with one thing changed."""

    def __init__(self, target: HostileTarget) -> None:
        path = key_path(target.settings)
        assert path is not None
        self.key = OKPKey.import_key(json.loads(Path(path).read_bytes()))
        self.good = target.token("viewer")
        header, claims, _ = self.good.split(".")
        self.header: dict[str, Any] = json.loads(_decoded(header))
        self.claims: dict[str, Any] = json.loads(_decoded(claims))

    def token(self, *, key: OKPKey | None = None, header: dict[str, Any] | None = None, **claims: object) -> str:
        """A token with other claims or another header; a claim that is None is left out."""
        said = {name: value for name, value in {**self.claims, **claims}.items() if value is not None}
        return self.raw(json.dumps({**self.header, **(header or {})}), json.dumps(said), key=key)

    def raw(self, header: str, claims: str, *, key: OKPKey | None = None) -> str:
        """A token of these texts."""
        signed = f"{token_part(header.encode())}.{token_part(claims.encode())}"
        return f"{signed}.{token_part(signature(key or self.key, _ALGORITHM, signed))}"

    def with_secret(self, secret: bytes) -> str:
        """A token that is signed with a shared secret."""
        header = {**self.header, "alg": "HS256"}
        signed = f"{token_part(header)}.{token_part(self.claims)}"
        return f"{signed}.{token_part(hmac.new(secret, signed.encode(), hashlib.sha256).digest())}"

    def with_signature(self, change: Callable[[str], str]) -> str:
        """The good token with another signature."""
        header, claims, signed = self.good.split(".")
        return f"{header}.{claims}.{change(signed)}"


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def refuses_tokens(*makers: TokenMaker, status: int = 401) -> Callable[[HostileTarget], None]:
    """Show each token; it gets nothing, and its claims are not repeated."""

    def attack(target: HostileTarget) -> None:
        forger = Forger(target)
        assert _status(target, forger.good) == _status(target, forger.token()) == 200
        for number, make in enumerate(makers):
            assert _status(target, make(forger)) == status, number

    return attack


def _status(target: HostileTarget, token: str) -> int:
    shown = target.ask("GET", "/v1/jobs", caller="", headers={"Authorization": f"Bearer {token}"})
    assert token.split(".")[1] not in shown.text
    return shown.status_code


def _twice(name: str, value: object) -> TokenMaker:
    def make(forger: Forger) -> str:
        claims = f"{json.dumps(forger.claims)[:-1]}, {json.dumps(name)}: {json.dumps(value)}}}"
        return forger.raw(json.dumps(forger.header), claims)

    return make


def _kid(kid: object) -> TokenMaker:
    return lambda forger: forger.token(header={"kid": kid})


def _claim(name: str, value: Any) -> TokenMaker:  # noqa: ANN401 - any JSON
    return lambda forger: forger.token(**{name: value})


def _number(name: str, text: str) -> TokenMaker:
    """A claim whose number is written as this text."""
    return lambda forger: forger.raw(
        json.dumps(forger.header), json.dumps({**forger.claims, name: "NUMBER"}).replace('"NUMBER"', text)
    )


shared_secrets = refuses_tokens(
    lambda forger: forger.with_secret(forger.key.as_pem(private=False)),
    lambda forger: forger.with_secret(forger.key.as_der(private=False)),
    lambda forger: forger.with_secret(json.dumps(public_jwk(forger.key)).encode()),
    lambda forger: forger.with_secret(b""),
)
embedded_keys = refuses_tokens(
    lambda forger: forger.token(key=okp("mallory")),
    lambda forger: forger.token(key=okp("mallory"), header={"jwk": public_jwk(okp("mallory"))}),
    lambda forger: forger.token(
        key=okp("mallory"), header={"jku": "http://127.0.0.1:1/k", "x5u": "http://127.0.0.1:1"}
    ),
)
key_ids = refuses_tokens(*map(_kid, ("../../dev/null", "' OR 1=1 --", ["k"], 1, None, "", "k" * 5000, "a\nb")))
critical_extensions = refuses_tokens(lambda forger: forger.token(header={"crit": ["exp"]}))
other_issuers = refuses_tokens(
    *(_claim("iss", name) for name in (f"{LOCAL_ISSUER}/", LOCAL_ISSUER.upper(), "https://iam.example", None, 7))
)
lifetimes = refuses_tokens(
    *(_claim("exp", value) for value in (None, "soon", 0, -1, 1_700_000_000, True)),
    *(_number("exp", text) for text in ("NaN", "1e400", "9" * 5000, "99999999999")),
    *(_claim(name, 99_999_999_999) for name in ("nbf", "iat")),
)
#: A token whose end was five minutes ago, and one that another node with a key of its own has signed.
replayed = refuses_tokens(
    lambda forger: forger.token(iat=int(time()) - 600, exp=int(time()) - 300),
    lambda forger: forger.token(key=okp("other-node"), header={"kid": okp("other-node").thumbprint()}),
)
claims_twice = refuses_tokens(_twice("roles", ["scheduler-admin"]), _twice("tenant", "other"), _twice("exp", 1))
unknown_roles = refuses_tokens(
    *(_claim("roles", value) for value in ([], ["root"], ["Scheduler-Admin"], ["admin"], "scheduler-admin,x")),
    status=403,
)
other_tokens = refuses_tokens(
    _claim("typ", "ID"), _claim("typ", "Refresh"), _claim("token_use", "id"), _claim("at_hash", "x")
)
other_forms = refuses_tokens(
    lambda forger: forger.token(header={"b64": False}),
    lambda forger: forger.token(header={"zip": "DEF"}),
    lambda forger: forger.token(header={"cty": "JWT"}),
    lambda forger: f"{token_part({'alg': 'RSA-OAEP', 'enc': 'A256GCM'})}.{forger.good}",
    lambda forger: forger.token(padding="x" * 9000),
)
signatures = refuses_tokens(
    lambda forger: forger.with_signature(lambda _: token_part(bytes(64))),
    lambda forger: forger.with_signature(lambda one: f"{one}=="),
    lambda forger: forger.with_signature(lambda one: one[:-4]),
    lambda forger: forger.with_signature(lambda one: one[:-1] + ("A" if one[-1] != "A" else "B")),
    lambda forger: forger.with_signature(lambda one: f"+{one[1:]}"),
)
