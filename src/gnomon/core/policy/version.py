"""Versions of the policy: every file that was ever in force, numbered in the order in which they were applied."""

from hashlib import sha256

from msgspec import Struct

from gnomon.errors import Stale

#: How many characters a policy file may have.
LARGEST_POLICY = 1 << 20


class PolicyVersion(Struct, frozen=True, kw_only=True):
    """One version. The newest one is in force."""

    #: From 1.
    version: int
    #: The SHA-256 of the body.
    digest: str
    #: The file as it was written.
    body: str
    author: str
    created_at: int


def body_digest(body: str) -> str:
    """The digest of a policy file."""
    return sha256(body.encode()).hexdigest()


def next_version(
    last: PolicyVersion | None, body: str, *, author: str, now: int, expected: int | None
) -> PolicyVersion:
    """The version that a file becomes; the last one if it has the same content. Stale if that is not `expected`."""
    number = 0 if last is None else last.version
    if expected is not None and expected != number:
        raise Stale("policy", f"version {expected}")
    digest = body_digest(body)
    if last is not None and last.digest == digest:
        return last
    return PolicyVersion(version=number + 1, digest=digest, body=body, author=author, created_at=now)
