"""How callers prove who they are: the settings of tokens."""

from gnomon.core.model import DAY_MS, MINUTE_MS, SECOND_MS
from gnomon.core.sources import Guarded

#: Whoever can check one of these cannot sign with it. Keys that are secret on both sides are never taken.
ASYMMETRIC = frozenset(
    "RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 Ed25519 Ed448 EdDSA".split(),
)


class Auth(Guarded, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who issues the tokens that callers show, and what they must say."""

    #: Who issues the tokens; its keys are at /.well-known/jwks.json unless `jwks_url` says otherwise.
    iam_url: str = ""
    verify_tokens: bool = True
    #: Without verification anybody is whoever they say; that takes a second word.
    accept_unverified: bool = False
    #: What tokens name as their issuer, to the letter; `iam_url` if not said.
    issuer: str = ""
    jwks_url: str = ""
    jwks_file: str = ""
    #: Let keys be fetched over a connection that anybody on the way can change.
    allow_http: bool = False
    #: One of these must be named by every token; any is taken if none is said.
    audience: tuple[str, ...] = ()
    algorithms: tuple[str, ...] = ("RS256", "PS256", "ES256", "ES384", "Ed25519", "EdDSA")
    clock_skew_ms: int = MINUTE_MS
    roles_claim: str = "roles"
    tenant_claim: str = "tenant"
    require_tenant: bool = False
    max_token_bytes: int = 8192
    #: Services that show a certificate instead of a token, as `NAME=ROLE` or `NAME=ROLE/TENANT`.
    certificates: tuple[str, ...] = ()
    #: The key with which this installation signs its own tokens; beside the database file if not said.
    key_file: str = ""
    #: How long fetched keys count before they are fetched again.
    keys_ttl_ms: int = 10 * MINUTE_MS
    #: How long they go on counting while the issuer is away.
    keys_patience_ms: int = DAY_MS
    #: Keys are not fetched more often than this, whatever tokens name.
    refetch_ms: int = 30 * SECOND_MS
    fetch_timeout_ms: int = 5 * SECOND_MS


AUTH_BOUNDS = {
    "auth.clock_skew_ms": (0, 10 * MINUTE_MS),
    "auth.max_token_bytes": (256, 65_536),
    "auth.keys_ttl_ms": (SECOND_MS, 7 * DAY_MS),
    "auth.keys_patience_ms": (SECOND_MS, 30 * DAY_MS),
    "auth.refetch_ms": (100, 60 * MINUTE_MS),
    "auth.fetch_timeout_ms": (10, MINUTE_MS),
}
