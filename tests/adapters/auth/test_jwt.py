"""Tokens against keys: what is taken, what is refused, and keys that come and go on a real server."""

import asyncio
import gzip
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey
from msgspec.structs import replace

from gnomon.adapters.auth.jwks import parse_key_ring
from gnomon.app.auth import TokenVerifier, open_token_verifier
from gnomon.config.sections import AuthSettings, DatabaseSettings
from gnomon.config.settings import Settings
from gnomon.errors import FieldError, FileError, IssuerUnavailable, TokenRefused, Unauthenticated
from gnomon.ports.auth import Caller, Role
from gnomon.testing.clock import Recorder, VirtualClock
from support.token_issuers import (
    ISSUER,
    LASTS_SECONDS,
    NOW,
    SECOND,
    KeyServer,
    answer,
    claims,
    ec,
    identity,
    okp,
    public_jwk,
    rsa,
    signature,
    token,
    token_part,
)

ADA = Caller("ada", frozenset({Role.OPERATOR}))
AUTH = AuthSettings(issuer=ISSUER, audience=("gnomon",), refetch_ms=30_000, fetch_timeout_ms=2000)


def failures(reported: Recorder) -> list[dict[str, object]]:
    return [facts for name, facts in reported.seen if name == "keys_not_fetched"]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(NOW)


@pytest.fixture
def reported() -> Recorder:
    return Recorder()


def settings(auth: AuthSettings) -> Settings:
    return Settings(auth=auth, database=DatabaseSettings(url="postgresql://db/gnomon"))


def jwks(tmp_path: Path, *keys: Mapping[str, Any]) -> Path:
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps({"keys": list(keys)}))
    return path


@pytest.fixture
def tokens(tmp_path: Path, clock: VirtualClock, reported: Recorder) -> TokenVerifier:
    """Takes tokens of an issuer with a key of every kind, published in a file."""
    path = jwks(tmp_path, public_jwk(rsa(), "r1"), public_jwk(ec(), "e1"), public_jwk(okp(), "o1"))
    return open_token_verifier(settings(replace(AUTH, jwks_file=str(path))), clock=clock, events=reported)


# ---- what is taken -------------------------------------------------------------------------------


@pytest.mark.req("H-20")
@pytest.mark.parametrize(
    "good",
    [
        pytest.param(token, id="RS256"),
        pytest.param(lambda: token(alg="PS256"), id="PS256"),
        pytest.param(lambda: token(key=ec(), alg="ES256", kid="e1"), id="ES256"),
        pytest.param(lambda: token(key=okp(), alg="Ed25519", kid="o1"), id="Ed25519"),
        pytest.param(lambda: token(kid=None), id="without a kid, if only one key fits"),
        pytest.param(lambda: token(typ="at+jwt"), id="an access token by name"),
        pytest.param(lambda: token(jku="https://evil.example/k", x5u="https://evil.example/c"), id="with addresses"),
        pytest.param(lambda: token(x5t="abc", unheard_of=[1]), id="with what nobody needs"),
    ],
)
async def test_a_good_token_says_who_it_is(tokens: TokenVerifier, good: Callable[[], str]) -> None:
    assert identity(await tokens.caller(good())) == ADA


@pytest.mark.filterwarnings("ignore:EdDSA is deprecated")
async def test_the_older_name_of_an_algorithm_is_taken(tokens: TokenVerifier) -> None:
    assert identity(await tokens.caller(token(key=okp(), alg="EdDSA", kid="o1"))) == ADA


async def test_a_caller_carries_the_id_and_the_end_of_its_token(tokens: TokenVerifier) -> None:
    found = await tokens.caller(token(claims(jti="t-1")))

    assert (found.token_id, found.issued_at) == ("t-1", NOW)
    assert found.expires_at == (SECOND + LASTS_SECONDS + 60) * 1000


async def test_a_token_without_an_id_is_known_by_what_is_signed(tokens: TokenVerifier) -> None:
    one, again = await tokens.caller(token(key=ec(), alg="ES256", kid="e1")), token(key=ec(), alg="ES256", kid="e1")
    other = await tokens.caller(token(claims(sub="bob")))

    assert one.token_id == (await tokens.caller(again)).token_id
    assert str(one.token_id).startswith("sha256:")
    assert one.token_id != other.token_id


async def test_a_token_that_was_taken_is_refused_once_it_has_expired(
    tokens: TokenVerifier, clock: VirtualClock
) -> None:
    shown = token()
    assert identity(await tokens.caller(shown)) == ADA

    clock.advance((LASTS_SECONDS + 60) * 1000)

    with pytest.raises(Unauthenticated, match="has expired"):
        await tokens.caller(shown)


# ---- what is refused -----------------------------------------------------------------------------


def unsigned(alg: object) -> str:
    header = {"alg": alg, "kid": "r1"} if alg is not None else {"kid": "r1"}
    return f"{token_part(header)}.{token_part(claims())}.{token_part(b'x')}"


def with_secret(secret: bytes, alg: str = "HS256") -> str:
    """A token signed with a secret that is the public key in some spelling."""
    signed = f"{token_part({'alg': alg, 'kid': 'r1'})}.{token_part(claims())}"
    return f"{signed}.{token_part(hmac.new(secret, signed.encode(), hashlib.sha256).digest())}"


def public_pem() -> bytes:
    return rsa().as_pem(private=False)


def spoilt(change: Callable[[list[str]], list[str]]) -> str:
    return ".".join(change(token().split(".")))


def raw(header: bytes, said: bytes) -> str:
    signed = f"{token_part(header)}.{token_part(said)}"
    return f"{signed}.{token_part(signature(rsa(), 'RS256', signed))}"


GOOD_HEADER = b'{"alg":"RS256","kid":"r1"}'
STRANGER = RSAKey.generate_key(2048)

HOSTILE: dict[str, Callable[[], str]] = {
    "nothing": lambda: "",
    "a dot": lambda: ".",
    "two dots": lambda: "..",
    "a word": lambda: "admin",
    "Bearer before it": lambda: f"Bearer {token()}",
    "a space after it": lambda: token() + " ",
    "a line feed after it": lambda: token() + "\n",
    "alg none": lambda: unsigned("none"),
    "alg None": lambda: unsigned("None"),
    "alg nOnE": lambda: unsigned("nOnE"),
    "alg empty": lambda: unsigned(""),
    "alg missing": lambda: unsigned(None),
    "alg a list": lambda: unsigned(["RS256"]),
    "alg a number": lambda: unsigned(256),
    "alg in small letters": lambda: unsigned("rs256"),
    "alg none without a signature": lambda: f"{token_part({'alg': 'none'})}.{token_part(claims())}.",
    "no signature": lambda: spoilt(lambda parts: [*parts[:2], ""]),
    "the public key as a secret, PEM": lambda: with_secret(public_pem()),
    "the public key as a secret, DER": lambda: with_secret(rsa().as_der(private=False)),
    "the public key as a secret, JSON": lambda: with_secret(json.dumps(public_jwk(rsa(), "r1")).encode()),
    "the public key as a secret, HS512": lambda: with_secret(public_pem(), "HS512"),
    "a secret of its own": lambda: token(key=OctKey.generate_key(256), alg="HS256"),
    "an algorithm that was not allowed": lambda: token(alg="RS512"),
    "an algorithm of another kind of key": lambda: token(key=ec(), alg="ES256", kid="r1"),
    "another key of that name": lambda: token(key=STRANGER),
    "a key of its own in the header": lambda: token(key=STRANGER, jwk=public_jwk(STRANGER)),
    "a key of its own at an address": lambda: token(key=STRANGER, jku="http://127.0.0.1:1/jwks.json"),
    "a certificate of its own": lambda: token(key=STRANGER, x5c=["MIIB"], x5u="http://127.0.0.1:1/c"),
    "an unknown kid": lambda: token(kid="r2"),
    "a kid that is a path": lambda: token(kid="../../../../dev/null"),
    "a kid that is SQL": lambda: token(kid="' OR 1=1 --"),
    "a kid without end": lambda: token(kid="r" * 5000),
    "a kid of two lines": lambda: token(kid="r1\nr2"),
    "an empty kid": lambda: token(kid=""),
    "a kid that is a list": lambda: raw(b'{"alg":"RS256","kid":["r1"]}', json.dumps(claims()).encode()),
    "a kid that is a number": lambda: raw(b'{"alg":"RS256","kid":1}', json.dumps(claims()).encode()),
    "a kid that is null": lambda: raw(b'{"alg":"RS256","kid":null}', json.dumps(claims()).encode()),
    "crit": lambda: token(crit=["exp"], exp=1),
    "b64": lambda: token(b64=False),
    "zip": lambda: token(zip="DEF"),
    "cty": lambda: token(cty="JWT"),
    "a typ of something else": lambda: token(typ="dpop+jwt"),
    "an encrypted token": lambda: ".".join([token_part({"alg": "RSA-OAEP", "enc": "A256GCM"}), "a", "b", "c", "d"]),
    "five parts": lambda: token() + ".a.b",
    "JSON with two signatures": lambda: json.dumps({"payload": token_part(claims()), "signatures": [{}, {}]}),
    "a header that says alg twice": lambda: raw(
        b'{"alg":"none","alg":"RS256","kid":"r1"}', json.dumps(claims()).encode()
    ),
    "claims that say roles twice": lambda: raw(
        GOOD_HEADER, json.dumps(claims()).encode()[:-1] + b',"roles":["scheduler-admin"]}'
    ),
    "claims that say a nested name twice": lambda: raw(
        GOOD_HEADER, json.dumps(claims()).encode()[:-1] + b',"a":{"b":1,"b":2}}'
    ),
    "claims that are a list": lambda: token([claims()]),
    "claims that are text": lambda: token("claims"),
    "claims that are no JSON": lambda: raw(GOOD_HEADER, b"{"),
    "claims in Latin-1": lambda: raw(GOOD_HEADER, b'{"sub":"\xe9"}'),
    "claims nested without end": lambda: raw(GOOD_HEADER, b"[" * 3000),
    "an end that is NaN": lambda: raw(GOOD_HEADER, b'{"sub":"ada","exp":NaN}'),
    "an end that is infinite": lambda: raw(GOOD_HEADER, json.dumps(claims(exp=1)).encode().replace(b"1}", b"1e999}")),
    "an end of 5,000 digits": lambda: raw(GOOD_HEADER, b'{"exp":' + b"9" * 5000 + b"}"),
    "claims with a zero byte": lambda: token(claims(sub="ada\x00")),
    "a token of a megabyte": lambda: token(claims(padding="x" * 2**20)),
    "a token just too long": lambda: token(claims(padding="x" * 8192)),
    "a changed header": lambda: spoilt(lambda p: [token_part({"alg": "RS256", "kid": "r1", "x": 1}), p[1], p[2]]),
    "changed claims": lambda: spoilt(lambda p: [p[0], token_part(claims(roles=["scheduler-admin"])), p[2]]),
    "a signature of another token": lambda: spoilt(lambda p: [*p[:2], token(claims(sub="b")).split(".")[2]]),
    "a signature cut short": lambda: spoilt(lambda p: [*p[:2], p[2][:-4]]),
    "a signature with padding": lambda: spoilt(lambda p: [*p[:2], p[2] + "=="]),
    "a signature in the other alphabet": lambda: spoilt(
        lambda p: [*p[:2], p[2].replace("_", "/").replace("-", "+") + "/"]
    ),
    "white space in the signature": lambda: spoilt(lambda p: [*p[:2], p[2][:9] + " " + p[2][9:]]),
    "a second spelling of the signature": lambda: spoilt(lambda p: [*p[:2], _respelt(p[2])]),
    "letters that are not ASCII": lambda: spoilt(lambda p: [*p[:2], "é" + p[2][1:]]),
    "a signature of zeros": lambda: _with_signature(token(key=ec(), alg="ES256", kid="e1"), bytes(64)),
    "a signature in another encoding": lambda: _with_signature(
        token(key=ec(), alg="ES256", kid="e1"), b"\x30\x06\x02\x01\x01\x02\x01\x01"
    ),
    "expired": lambda: token(claims(exp=SECOND - 61)),
    "without an end": lambda: token(claims(exp=None)),
    "not yet": lambda: token(claims(nbf=SECOND + 120)),
    "issued in the future": lambda: token(claims(iat=SECOND + 120)),
    "for somebody else": lambda: token(claims(aud="other")),
    "for nobody": lambda: token(claims(aud=None)),
    "of another issuer": lambda: token(claims(iss="https://evil.example")),
    "of an issuer that is almost ours": lambda: token(claims(iss=ISSUER + "/")),
    "of no issuer": lambda: token(claims(iss=None)),
    "of ourselves, signed by the issuer": lambda: token(claims(iss="urn:gnomon:local")),
    "of nobody": lambda: token(claims(sub=None)),
    "of a list of people": lambda: token(claims(sub=["ada", "bob"])),
    "with roles in a mapping": lambda: token(claims(roles={"scheduler-admin": 1})),
    "with a tenant that is a path": lambda: token(claims(tenant="../acme")),
}


def _respelt(signature_part: str) -> str:
    """The same bytes in other letters: the last one has bits that nobody reads."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return signature_part[:-1] + letters[letters.index(signature_part[-1]) + 1]


def _with_signature(shown: str, other: bytes) -> str:
    return ".".join([*shown.split(".")[:2], token_part(other)])


@pytest.mark.req("H-20")
@pytest.mark.guarantee("S24")
@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_token_is_refused(tokens: TokenVerifier, name: str) -> None:
    shown = HOSTILE[name]()

    with pytest.raises(Unauthenticated) as refused:
        await tokens.caller(shown)

    assert len(shown) < 20 or shown[:20] not in str(refused.value)


# ---- keys ----------------------------------------------------------------------------------------

UNUSABLE: dict[str, Callable[[], object]] = {
    "no mapping": lambda: "key",
    "no kind": lambda: {"kid": "k"},
    "a shared secret": lambda: {"kty": "oct", "k": "c2VjcmV0", "kid": "k"},
    "a private key": lambda: {**rsa().as_dict(private=True), "kid": "k"},
    "for encryption": lambda: public_jwk(rsa(), "k", use="enc"),
    "for other operations": lambda: public_jwk(rsa(), "k", key_ops=["encrypt"]),
    "a short key": lambda: {"kty": "RSA", "n": token_part(b"\xff" * 128), "e": "AQAB", "kid": "k"},
    "for an algorithm that is not taken": lambda: public_jwk(rsa(), "k", alg="RS512"),
    "for an algorithm that it cannot do": lambda: public_jwk(rsa(), "k", alg="ES256"),
    "for a shared secret's algorithm": lambda: public_jwk(rsa(), "k", alg="HS256"),
    "exponent 1": lambda: public_jwk(rsa(), "k") | {"e": "AQ"},
    "a name that is a number": lambda: public_jwk(rsa(), "k") | {"kid": 7},
    "a modulus that is a number": lambda: public_jwk(rsa(), "k") | {"n": 7},
    "a point off the curve": lambda: public_jwk(ec(), "k") | {"x": "AA"},
    "a curve for something else": lambda: public_jwk(OKPKey.generate_key("X25519"), "k"),
    "a curve that is not taken": lambda: public_jwk(ECKey.generate_key("P-521"), "k"),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_an_untrusted_key_is_ignored_and_reported(name: str) -> None:
    passed: list[str] = []

    ring = parse_key_ring(
        {"keys": [UNUSABLE[name](), public_jwk(rsa("other"), "good")]},
        AUTH.algorithms,
        lambda _, why: passed.append(why),
    )

    assert ring.find_key("k", "RS256") is None
    assert ring.find_key("good", "RS256") is not None
    assert len(passed) == 1


def test_a_name_that_several_keys_have_is_the_name_of_none() -> None:
    passed: list[tuple[str, str]] = []

    ring = parse_key_ring(
        {"keys": [public_jwk(rsa(), "k"), public_jwk(ec(), "k")]},
        AUTH.algorithms,
        lambda *reported: passed.append(reported),
    )

    assert len(ring) == 0
    assert passed == [("k", "is the name of several keys")]


def test_without_a_name_a_token_must_fit_exactly_one_key() -> None:
    ring = parse_key_ring(
        {"keys": [public_jwk(rsa(), "a"), public_jwk(rsa("b"), "b")]}, AUTH.algorithms, lambda *_: None
    )

    assert ring.find_key(None, "RS256") is None


# ---- keys in a file ------------------------------------------------------------------------------


async def test_keys_in_a_file_are_read_again_when_it_changes(
    tokens: TokenVerifier, tmp_path: Path, clock: VirtualClock
) -> None:
    fresh = token(key=rsa("new"), kid="new")
    with pytest.raises(Unauthenticated):
        await tokens.caller(fresh)

    jwks(tmp_path, public_jwk(rsa("new"), "new"))
    clock.advance(2_000)

    assert identity(await tokens.caller(fresh)) == ADA
    with pytest.raises(Unauthenticated, match="no key of its issuer fits it"):
        await tokens.caller(token())


async def test_a_file_that_has_become_unreadable_leaves_the_keys_as_they_were(
    tokens: TokenVerifier, tmp_path: Path, clock: VirtualClock, reported: Recorder
) -> None:
    (tmp_path / "jwks.json").write_text("{")
    clock.advance(2_000)

    assert identity(await tokens.caller(token())) == ADA
    assert failures(reported)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"keys": 5}', "[" * 100_000, " " * (2**20 + 1)])
def test_a_file_without_keys_is_refused_at_the_start(tmp_path: Path, text: str) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(text)

    with pytest.raises(FileError, match="has no keys to check tokens with"):
        open_token_verifier(settings(replace(AUTH, jwks_file=str(path))))


# ---- keys on a server ----------------------------------------------------------------------------


@pytest.fixture
async def server() -> AsyncIterator[KeyServer]:
    async with KeyServer(public_jwk(rsa(), "r1")) as server:
        yield server


@pytest.fixture
async def fetched(server: KeyServer, clock: VirtualClock, reported: Recorder) -> AsyncIterator[TokenVerifier]:
    found = open_token_verifier(settings(replace(AUTH, jwks_url=server.url)), clock=clock, events=reported)
    yield found
    await found.close()


@pytest.mark.req("H-20")
async def test_keys_are_fetched_once_for_many_tokens(fetched: TokenVerifier, server: KeyServer) -> None:
    callers = await asyncio.gather(*(fetched.caller(token(claims(sub=f"user{n}"))) for n in range(20)))

    assert {one.subject for one in callers} == {f"user{n}" for n in range(20)}
    assert server.requests == 1


@pytest.mark.req("H-20")
async def test_a_key_that_is_used_at_once_after_it_was_published_is_found(
    fetched: TokenVerifier, server: KeyServer, clock: VirtualClock
) -> None:
    await fetched.caller(token())
    server.keys = [public_jwk(rsa(), "r1"), public_jwk(rsa("new"), "new")]
    clock.advance(30_000)

    assert identity(await fetched.caller(token(key=rsa("new"), kid="new"))) == ADA
    assert server.requests == 2


async def test_a_key_that_was_taken_back_no_longer_counts_once_keys_are_old(
    fetched: TokenVerifier, server: KeyServer, clock: VirtualClock
) -> None:
    await fetched.caller(token())
    server.keys = [public_jwk(rsa("new"), "new")]
    clock.advance(600_000)

    # Nobody whose key is known waits; this one starts the fetch, and waits for it.
    await fetched.caller(token(key=rsa("new"), kid="new"))

    with pytest.raises(Unauthenticated, match="no key of its issuer fits it"):
        await fetched.caller(token())


@pytest.mark.guarantee("S24")
async def test_names_that_nobody_knows_cost_one_fetch(
    fetched: TokenVerifier, server: KeyServer, clock: VirtualClock
) -> None:
    await fetched.caller(token())
    clock.advance(30_000)

    refused = await asyncio.gather(
        *(fetched.caller(token(key=okp(), alg="Ed25519", kid=f"x{n}")) for n in range(200)), return_exceptions=True
    )

    assert {type(one) for one in refused} == {TokenRefused}
    for number in range(5):
        with pytest.raises(Unauthenticated):
            await fetched.caller(token(key=okp(), alg="Ed25519", kid=f"y{number}"))
    assert server.requests == 2
    assert identity(await fetched.caller(token())) == ADA


async def test_known_keys_count_at_once_while_the_issuer_hangs(
    fetched: TokenVerifier, server: KeyServer, clock: VirtualClock
) -> None:
    await fetched.caller(token())
    hung = asyncio.Event()
    server.instead = lambda _: wait_for(hung)
    server.asked.clear()
    clock.advance(601_000)

    assert identity(await asyncio.wait_for(fetched.caller(token()), 30)) == ADA

    await server.asked.wait()
    hung.set()


async def wait_for(event: asyncio.Event) -> None:
    await event.wait()


BAD_ANSWERS = {
    "500": answer(b"sorry", "500 Internal Server Error"),
    "404": answer(b"{}", "404 Not Found"),
    "a redirect": answer(b"", "302 Found", "Location: http://127.0.0.1:1/jwks.json"),
    "a page": answer(b"<html><body>Sign in</body></html>"),
    "nothing": answer(b""),
    "a list": answer(b"[]"),
    "no keys": answer(b'{"keys": {}}'),
    "too many keys": answer(json.dumps({"keys": [{}] * 101}).encode()),
    "depth": answer(b'{"keys":' + b"[" * 100_000),
    "bytes": answer(bytes(range(128, 256))),
    "too much": answer(b" " * (2**20 + 1)),
    "a bomb": answer(gzip.compress(b" " * 2**26), "200 OK", "Content-Encoding: gzip"),
}


@pytest.mark.parametrize("name", BAD_ANSWERS)
async def test_an_issuer_that_never_answered_well_lets_nobody_in(
    fetched: TokenVerifier, server: KeyServer, reported: Recorder, name: str
) -> None:
    server.instead = BAD_ANSWERS[name]

    with pytest.raises(IssuerUnavailable):
        await fetched.caller(token())

    assert len(failures(reported)) == 1


@pytest.mark.parametrize("name", BAD_ANSWERS)
async def test_an_issuer_that_no_longer_answers_well_leaves_the_keys_as_they_were(
    fetched: TokenVerifier, server: KeyServer, clock: VirtualClock, name: str
) -> None:
    await fetched.caller(token())
    server.instead = BAD_ANSWERS[name]
    clock.advance(601_000)

    with pytest.raises(Unauthenticated):
        await fetched.caller(token(kid="unknown"))

    assert server.requests == 2
    assert identity(await fetched.caller(token())) == ADA


async def test_redirects_of_an_issuer_are_not_followed(fetched: TokenVerifier, server: KeyServer) -> None:
    async with KeyServer(public_jwk(rsa(), "r1")) as elsewhere:
        server.instead = answer(b"", "302 Found", f"Location: {elsewhere.url}")

        with pytest.raises(IssuerUnavailable):
            await fetched.caller(token())

        assert elsewhere.requests == 0


async def test_keys_of_an_issuer_that_stays_away_end_to_count(
    fetched: TokenVerifier, server: KeyServer, clock: VirtualClock
) -> None:
    await fetched.caller(token())
    server.instead = BAD_ANSWERS["500"]
    clock.advance(24 * 3_600_000)

    with pytest.raises(IssuerUnavailable):
        await fetched.caller(token())


async def test_an_issuer_that_hangs_is_given_up(server: KeyServer, clock: VirtualClock, reported: Recorder) -> None:
    hung = asyncio.Event()
    server.instead = lambda _: wait_for(hung)
    quick = open_token_verifier(
        settings(replace(AUTH, jwks_url=server.url, fetch_timeout_ms=20)), clock=clock, events=reported
    )

    with pytest.raises(IssuerUnavailable):
        await quick.caller(token())

    hung.set()
    assert failures(reported) == [{"error": "RequestFailed: no answer within 0.02 s"}]


async def test_an_issuer_that_is_not_there_is_unavailable(clock: VirtualClock, reported: Recorder) -> None:
    away = open_token_verifier(
        settings(replace(AUTH, jwks_url="http://127.0.0.1:1/jwks.json")), clock=clock, events=reported
    )

    with pytest.raises(IssuerUnavailable):
        await away.caller(token())


async def test_the_address_of_the_issuer_is_where_its_keys_are(server: KeyServer, clock: VirtualClock) -> None:
    base = server.url.removesuffix("/jwks.json")
    found = open_token_verifier(settings(AuthSettings(iam_url=base, audience=("gnomon",))), clock=clock)

    assert identity(await found.caller(token(claims(iss=base)))) == ADA


@pytest.mark.parametrize("audience", [(), ("",)])
@pytest.mark.parametrize("source", ["iam_url", "jwks_url", "jwks_file"])
def test_an_issuer_without_an_audience_is_refused_at_the_start(
    tmp_path: Path, source: str, audience: tuple[str, ...]
) -> None:
    where = str(jwks(tmp_path, public_jwk(rsa(), "r1"))) if source == "jwks_file" else "https://iam.example/"
    auth = AuthSettings(issuer=ISSUER, audience=audience)

    with pytest.raises(FieldError, match=r"auth\.audience"):
        open_token_verifier(settings(replace(auth, **{source: where})))


async def test_a_token_that_is_valid_for_too_long_is_refused(tmp_path: Path, clock: VirtualClock) -> None:
    path = jwks(tmp_path, public_jwk(rsa(), "r1"))
    auth = replace(AUTH, jwks_file=str(path), max_lifetime_ms=(LASTS_SECONDS - 1) * 1000)

    with pytest.raises(TokenRefused, match="max_lifetime"):
        await open_token_verifier(settings(auth), clock=clock).caller(token())


async def test_no_address_in_a_token_is_ever_asked(tokens: TokenVerifier, server: KeyServer) -> None:
    for header in ({"jku": server.url}, {"x5u": server.url}):
        with pytest.raises(Unauthenticated):
            await tokens.caller(token(key=STRANGER, **header))

    assert server.requests == 0


# ---- settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("auth", "field"),
    [
        pytest.param(AuthSettings(), "auth.iam_url", id="nobody issues"),
        pytest.param(AuthSettings(verify_tokens=False), "auth.verify_tokens", id="everybody is believed by accident"),
        pytest.param(
            AuthSettings(iam_url="https://iam", algorithms=("HS256",)), "auth.algorithms", id="a shared secret"
        ),
        pytest.param(AuthSettings(iam_url="https://iam", algorithms=("none",)), "auth.algorithms", id="none"),
        pytest.param(AuthSettings(iam_url="https://iam", algorithms=()), "auth.algorithms", id="no algorithm"),
        pytest.param(AuthSettings(jwks_url="https://iam/jwks"), "auth.issuer", id="keys without an issuer"),
        pytest.param(AuthSettings(jwks_url="https://a:b@iam/", issuer="i"), "auth.jwks_url", id="credentials"),
        pytest.param(AuthSettings(iam_url="https://iam:0"), "auth.iam_url", id="port 0"),
        pytest.param(AuthSettings(iam_url="http://iam.example"), "auth.iam_url", id="no TLS"),
        pytest.param(AuthSettings(iam_url="file:///etc/passwd"), "auth.iam_url", id="a file as an address"),
        pytest.param(AuthSettings(iam_url="https://[::"), "auth.iam_url", id="no address"),
        pytest.param(
            AuthSettings(jwks_url="https://iam", jwks_file="x", issuer="i"), "auth.jwks_file", id="two places"
        ),
    ],
)
def test_settings_that_would_let_anybody_in_are_refused(auth: AuthSettings, field: str) -> None:
    with pytest.raises(FieldError) as refused:
        open_token_verifier(settings(auth))

    assert refused.value.field == field


async def test_unverified_tokens_are_accepted_only_with_both_settings(clock: VirtualClock) -> None:
    believing = open_token_verifier(settings(AuthSettings(verify_tokens=False, accept_unverified=True)), clock=clock)

    assert identity(await believing.caller(token(key=STRANGER))) == ADA
    with pytest.raises(Unauthenticated):
        await believing.caller(unsigned("none"))
