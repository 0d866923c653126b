"""The terms of an approval: who may vote, how many have to, and until when."""

from collections.abc import Collection

from msgspec import Struct

from gnomon.core.durations import duration_text
from gnomon.core.model import DAY_MS

#: The role of voters if the terms name nobody.
DEFAULT_ROLE = "admin"
ROLES = ("viewer", "operator", "admin")
DEFAULT_EXPIRY_MS = DAY_MS


class ApprovalTerms(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The terms of an approval. A voter must meet every condition that is set, each with one of its entries."""

    roles: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    #: The names of persons.
    voters: tuple[str, ...] = ()
    #: How many persons have to approve.
    quorum: int = 1
    #: How long the question stays open.
    expires_ms: int = DEFAULT_EXPIRY_MS
    #: Whether the person who requested the run and the last authors of its definition may vote, too.
    self_approval: bool = False

    @property
    def voter_roles(self) -> tuple[str, ...]:
        """The roles of which a voter must have one."""
        if self.roles or self.groups or self.voters:
            return self.roles
        return (DEFAULT_ROLE,)


DEFAULT_TERMS = ApprovalTerms()
#: The terms of approvals of commands: an admin decides, also about a definition of their own.
COMMAND_TERMS = ApprovalTerms(self_approval=True)


class Voter(Struct, frozen=True, kw_only=True):
    """An authenticated caller who wants to vote."""

    name: str
    roles: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()


def voter_refusal(terms: ApprovalTerms, voter: Voter, excluded: Collection[str]) -> str | None:
    """Why the terms do not let the caller vote; None if they do. `excluded` are those who asked for the task."""
    if not terms.self_approval and voter.name in excluded:
        return f"{voter.name} has requested the run or written its definition, and so may not vote on it"
    if terms.voters and voter.name not in terms.voters:
        return f"only {_either(terms.voters)} may vote on it"
    if terms.voter_roles and voter.roles.isdisjoint(terms.voter_roles):
        return f"only callers with the role {_either(terms.voter_roles)} may vote on it"
    if terms.groups and voter.groups.isdisjoint(terms.groups):
        return f"only members of {_either(terms.groups)} may vote on it"
    return None


def terms_text(terms: ApprovalTerms, *, expires: bool = True) -> str:
    """The terms as a clause: the number of votes, the voters, and, if it expires, the time that they have."""
    who = " ".join(
        part
        for part in (
            f"of {_either(terms.voters)}" if terms.voters else "",
            f"with the role {_either(terms.voter_roles)}" if terms.voter_roles else "",
            f"in {_either(terms.groups)}" if terms.groups else "",
        )
        if part
    )
    persons = "1 person" if terms.quorum == 1 else f"{terms.quorum} persons"
    return f"{persons} {who}" + (f" within {duration_text(terms.expires_ms)}" if expires else "")


def _either(names: Collection[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last
