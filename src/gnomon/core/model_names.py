"""The names under which models act.

A model acts for the owner of a token, or for the local user. A change is recorded under the actor `model:NAME`, with
the owner beside it. On the way there both are one text, as every actor is, which only this module writes and reads.
"""

import re

from gnomon.errors import FieldError

#: The header of a request that a model makes.
MODEL_HEADER = "Gnomon-Model"
#: A model whose program gives no name.
UNNAMED = "unnamed"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_OTHER = re.compile(r"[^A-Za-z0-9._-]+")
_PREFIX, _JOB = "model:", "job:"
_ACTOR = re.compile(r"(model:[A-Za-z0-9][A-Za-z0-9._-]{0,63}) for (.+)")


def model_name(field: str, value: str) -> str:
    """The value; FieldError unless it is a name for a model."""
    if not _NAME.fullmatch(value):
        reason = "must be 1 to 64 letters, digits, dots, dashes and underscores, beginning with a letter or digit"
        raise FieldError(field, value, reason)
    return value


def name_of_program(given: str) -> str:
    """A name for the model of the program that calls itself so."""
    return _OTHER.sub("-", given[:200]).strip("._-")[:64] or UNNAMED


def model_actor(model: str, owner: str) -> str:
    """The actor of a model, and the owner for whom it acts."""
    return f"{_PREFIX}{model} for {owner}"


def actor_and_owner(actor: str) -> tuple[str, str | None]:
    """The actor, and the owner for whom it acts if it is a model."""
    found = _ACTOR.fullmatch(actor) if actor.startswith(_PREFIX) else None
    return (actor, None) if found is None else (found[1], found[2])


def job_actor(job: str) -> str:
    """The owner of the agents of a job."""
    return f"{_JOB}{job}"


def job_of(actor: str) -> str | None:
    """The job whose agent acts; None if it is none."""
    owner = owner_of(actor)
    return owner.removeprefix(_JOB) if owner.startswith(_JOB) else None


def owner_of(actor: str) -> str:
    """The person or the program for whom a model acts; the actor itself if it is none."""
    return actor_and_owner(actor)[1] or actor
