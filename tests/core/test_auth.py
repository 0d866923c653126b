"""The claims of a token: read strictly, judged by rules, at an instant that is given."""

from typing import Any

import pytest

from gnomon.adapters.auth.jwks import KeyFetchState, keys_usable, should_fetch_keys
from gnomon.config.sections import AuthSettings
from gnomon.core.auth import ClaimRules, VerifiedClaims, parse_token, verify_claims
from gnomon.errors import RefusalReason, TokenRefused, Unauthenticated
from support.token_issuers import ISSUER, LASTS_SECONDS, NOW, SECOND, claims, token_part

ROLES = frozenset({"scheduler-viewer", "scheduler-operator", "scheduler-admin"})
RULES = ClaimRules(issuer=ISSUER, audience=frozenset({"gnomon", "other"}), roles=ROLES)


def judged(rules: ClaimRules = RULES, **changes: object) -> VerifiedClaims:
    return verify_claims(claims(**changes), rules, now=NOW)


@pytest.mark.req("H-20")
def test_claims_say_who_it_is() -> None:
    assert judged(jti="t-1") == VerifiedClaims(
        "ada",
        frozenset({"scheduler-operator"}),
        "default",
        expires_at=(SECOND + LASTS_SECONDS) * 1000 + RULES.skew_ms,
        token_id="t-1",  # noqa: S106 - an id, no secret
        issued_at=NOW,
    )


@pytest.mark.parametrize("jti", ["", 5, ["a"], "x" * 256, "a\nb", {"a": 1}, True])
def test_an_id_that_is_no_id_is_refused(jti: object) -> None:
    with pytest.raises(Unauthenticated, match="its jti is no id of a token"):
        judged(jti=jti)


@pytest.mark.req("H-20")
@pytest.mark.parametrize(
    ("said", "roles"),
    [
        (["scheduler-viewer", "scheduler-admin"], {"scheduler-viewer", "scheduler-admin"}),
        ("scheduler-viewer scheduler-admin", {"scheduler-viewer", "scheduler-admin"}),
        ("scheduler-viewer", {"scheduler-viewer"}),
        (["Scheduler-Admin", "SCHEDULER-ADMIN", " scheduler-admin", "admin", "scheduler-admin2"], set()),
        ([], set()),
        ("", set()),
        (None, set()),
    ],
)
def test_only_known_roles_count_to_the_letter(said: object, roles: set[str]) -> None:
    assert judged(roles=said).roles == roles


def test_roles_may_be_nested_as_some_issuers_do() -> None:
    rules = ClaimRules(roles=ROLES, roles_claim="realm_access.roles")

    assert judged(rules, realm_access={"roles": ["scheduler-viewer"]}).roles == {"scheduler-viewer"}


def test_a_tenant_is_taken_from_its_claim() -> None:
    assert judged(tenant="acme").tenant == "acme"


@pytest.mark.parametrize(
    "said",
    [
        pytest.param({"iat": SECOND, "exp": SECOND + 7201}, id="from its issue"),
        pytest.param({"iat": None, "nbf": SECOND - 60, "exp": SECOND + 7141}, id="from when it began"),
        pytest.param({"iat": None, "exp": SECOND + 7201}, id="from now on"),
    ],
)
def test_a_token_that_is_valid_for_too_long_is_refused(said: dict[str, Any]) -> None:
    rules = ClaimRules(roles=ROLES, max_lifetime_ms=7_200_000)

    with pytest.raises(TokenRefused, match=r"longer than auth\.max_lifetime") as refused:
        judged(rules, **said)
    assert refused.value.cause is RefusalReason.LIFETIME
    assert judged(rules, **said | {"exp": said["exp"] - 1}).subject == "ada"


def test_a_tenant_may_be_required() -> None:
    with pytest.raises(Unauthenticated, match="its tenant is missing"):
        judged(ClaimRules(require_tenant=True))


@pytest.mark.parametrize("aud", ["gnomon", "other", ["elsewhere", "gnomon"]])
def test_an_audience_counts_if_we_are_in_it(aud: object) -> None:
    assert judged(aud=aud).subject == "ada"


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": SECOND - 59},
        {"nbf": SECOND + 60, "iat": SECOND + 60},
        {"exp": SECOND + 0.5},
    ],
)
def test_clocks_may_differ_a_little(changes: dict[str, Any]) -> None:
    assert judged(**changes).subject == "ada"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"iss": None}, "its iss", id="no issuer"),
        pytest.param({"iss": ISSUER + "/"}, "its iss", id="an issuer with a slash more"),
        pytest.param({"iss": ISSUER.upper()}, "its iss", id="an issuer in capitals"),
        pytest.param({"iss": [ISSUER]}, "its iss", id="an issuer in a list"),
        pytest.param({"aud": None}, "its aud", id="no audience"),
        pytest.param({"aud": "gnomo"}, "its aud", id="the beginning of our name"),
        pytest.param({"aud": "gnomon2"}, "its aud", id="our name and more"),
        pytest.param({"aud": {"gnomon": True}}, "its aud", id="an audience in a mapping"),
        pytest.param({"aud": [["gnomon"]]}, "its aud", id="an audience in a list in a list"),
        pytest.param({"exp": None}, "its exp is missing", id="no end"),
        pytest.param({"exp": str(SECOND + 300)}, "its exp is no instant", id="an end as text"),
        pytest.param({"exp": True}, "its exp is no instant", id="an end that is true"),
        pytest.param({"exp": -1}, "its exp is no instant", id="an end before 1970"),
        pytest.param({"exp": 10**300}, "its exp is no instant", id="an end after all calendars"),
        pytest.param({"exp": 10**400}, "its exp is no instant", id="an end that no float can hold"),
        pytest.param({"exp": SECOND - 60}, "has expired", id="expired"),
        pytest.param({"nbf": SECOND + 61}, "its nbf lies in the future", id="not yet"),
        pytest.param({"nbf": "soon"}, "its nbf is no instant", id="not before some day"),
        pytest.param({"iat": SECOND + 61}, "its iat lies in the future", id="issued tomorrow"),
        pytest.param({"iat": []}, "its iat is no instant", id="issued at a list"),
        pytest.param({"sub": None}, "its sub", id="nobody"),
        pytest.param({"sub": ""}, "its sub", id="an empty name"),
        pytest.param({"sub": "  "}, "its sub", id="a blank name"),
        pytest.param({"sub": 7}, "its sub", id="a number for a name"),
        pytest.param({"sub": ["ada"]}, "its sub", id="a list of names"),
        pytest.param({"sub": "a" * 256}, "its sub", id="a name without end"),
        pytest.param({"sub": "ada\nroot"}, "its sub", id="a name of two lines"),
        pytest.param({"sub": "ada\u202e"}, "its sub", id="a name that is written backwards"),
        pytest.param({"sub": "\ud800"}, "its sub", id="half a character"),
        pytest.param({"roles": {"scheduler-admin": True}}, "its roles", id="roles in a mapping"),
        pytest.param({"roles": 7}, "its roles", id="a number for roles"),
        pytest.param({"roles": [["scheduler-admin"]]}, "its roles", id="roles in a list in a list"),
        pytest.param({"roles": ["scheduler-admin", None]}, "its roles", id="a role that is nothing"),
        pytest.param({"tenant": "../other"}, "its tenant", id="a tenant that is a path"),
        pytest.param({"tenant": 5}, "its tenant", id="a tenant that is a number"),
        pytest.param({"tenant": ""}, "its tenant", id="a tenant without a name"),
        pytest.param({"typ": "ID"}, "not an access token", id="an identity token"),
        pytest.param({"typ": "Refresh"}, "not an access token", id="a refresh token"),
        pytest.param({"token_use": "id"}, "not an access token", id="an identity token of another make"),
        pytest.param({"at_hash": "x"}, "not an access token", id="what only identity tokens have"),
    ],
)
def test_claims_that_prove_nothing_are_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(Unauthenticated, match=reason):
        judged(**changes)


def test_a_token_is_taken_apart() -> None:
    found = parse_token(
        f"{token_part({'alg': 'RS256', 'kid': 'k'})}.{token_part({'a': 1})}.c2ln", algorithms=["RS256"], largest=1000
    )

    assert (found.algorithm, found.kid, found.claims, found.signature) == ("RS256", "k", {"a": 1}, b"sig")


def test_a_refusal_never_shows_the_token() -> None:
    with pytest.raises(Unauthenticated) as refused:
        parse_token("s3cret.s3cret.s3cret", algorithms=["RS256"], largest=1000)

    assert "s3cret" not in str(refused.value)


# ---- when keys are fetched -----------------------------------------------------------------------

SETTINGS = AuthSettings(keys_ttl_ms=600, keys_patience_ms=5000, refetch_ms=30)


@pytest.mark.parametrize(
    ("state", "known", "now", "fetch"),
    [
        pytest.param(KeyFetchState(), False, 0, True, id="never tried"),
        pytest.param(KeyFetchState(None, 0), False, 29, False, id="failed just now"),
        pytest.param(KeyFetchState(None, 0), False, 30, True, id="failed a while ago"),
        pytest.param(KeyFetchState(0, 0), True, 599, False, id="fresh and known"),
        pytest.param(KeyFetchState(0, 0), True, 600, True, id="old and known"),
        pytest.param(KeyFetchState(0, 0), False, 29, False, id="unknown but fetched just now"),
        pytest.param(KeyFetchState(0, 0), False, 30, True, id="unknown"),
        pytest.param(KeyFetchState(0, 600), True, 629, False, id="old, and the issuer is away"),
    ],
)
def test_keys_are_fetched_when_that_may_help(state: KeyFetchState, known: bool, now: int, fetch: bool) -> None:  # noqa: FBT001 - a column
    assert should_fetch_keys(state, SETTINGS, known=known, now=now) is fetch


@pytest.mark.parametrize(("now", "count"), [(0, True), (4999, True), (5000, False)])
def test_keys_of_an_issuer_that_is_away_count_for_a_while(now: int, count: bool) -> None:  # noqa: FBT001 - a column
    assert keys_usable(KeyFetchState(0, 0), SETTINGS, now=now) is count


def test_keys_that_were_never_had_do_not_count() -> None:
    assert not keys_usable(KeyFetchState(None, 0), SETTINGS, now=0)
