"""The routing fields of jobs, steps and workers, and the table of pools (pools.yaml)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from gnomon.core.jobs.fields import FieldReader, printable, schedule_name
from gnomon.core.runs.rollback import COMPENSATION_TERMS
from gnomon.core.runs.routing import PREFERRED_POOL, Pools
from gnomon.core.runs.workflow import Priority, RoutingRequirements
from gnomon.errors import FieldError

ROUTE_FIELDS = ("pool", "topic", "requires", "labels", "priority")
MOST_REQUIRED, LONGEST_CAPABILITY = 50, 64
MOST_LABELS, LONGEST_LABEL, LONGEST_LABEL_VALUE = 50, 128, 255
LONGEST_TOPIC = 255
MOST_TOPICS, MOST_POOLS = 10_000, 1000
MAX_IN_FLIGHT_LIMIT = 1_000_000


# ---- jobs and steps ------------------------------------------------------------------------------


def read_route(fields: FieldReader, inherited: RoutingRequirements | None = None) -> RoutingRequirements | None:
    """The routing of a step or job: its own fields, completed by `inherited`. None if it has no requirements."""
    if not any(field in fields for field in ROUTE_FIELDS):
        return inherited
    route = inherited or RoutingRequirements()
    if "pool" in fields:
        route = replace(route, pool=fields.name("pool"))
    if "topic" in fields:
        route = replace(route, topic=_topic(fields.at("topic"), fields["topic"]))
    if "requires" in fields:
        route = replace(route, requires=read_capabilities(fields, "requires"))
    if "labels" in fields:
        labels = read_labels(fields.at("labels"), fields["labels"])
        for name in labels.keys() & set(COMPENSATION_TERMS):
            # A rule of the policy may look at it.
            raise FieldError(f"{fields.at('labels')}.{name}", labels[name], "is a label that only compensations have")
        route = replace(route, labels={**route.labels, **labels})
    preferred = route.labels.get(PREFERRED_POOL)
    if preferred is not None and route.pool not in (None, preferred):
        raise fields.refused("pool", f"contradicts the label {PREFERRED_POOL}, which is {preferred!r}")
    route = replace(route, priority=fields.choice("priority", Priority, route.priority))
    return None if route == RoutingRequirements() else route


def route_as_data(route: RoutingRequirements | None) -> Iterator[tuple[str, Any]]:
    """The fields that define this routing."""
    for field in ROUTE_FIELDS if route is not None else ():
        value = getattr(route, field)
        if value != getattr(RoutingRequirements(), field):
            yield field, list(value) if isinstance(value, tuple) else str(value) if field == "priority" else value


def read_capabilities(fields: FieldReader, field: str) -> tuple[str, ...]:
    """The capabilities in lower case, each once."""
    found: dict[str, None] = {}
    for path, value in fields.entries(field, most=MOST_REQUIRED):
        found[_capability(path, value)] = None
    return tuple(found)


def _capability(path: str, value: object) -> str:
    word = printable(path, value, longest=LONGEST_CAPABILITY).strip().lower()
    if not word:
        raise FieldError(path, value, "is empty")
    return word


def read_labels(path: str, value: object) -> dict[str, str]:
    """The labels: texts by name."""
    if not isinstance(value, Mapping):
        raise FieldError(path, value, "must be a mapping of labels")
    if len(value) > MOST_LABELS:
        raise FieldError(path, value, f"has {len(value)} labels; at most {MOST_LABELS} are allowed")
    labels = {}
    for key, text in value.items():
        name = printable(path, key, longest=LONGEST_LABEL)
        if not name.strip():
            raise FieldError(path, key, "has a label without a name")
        labels[name] = printable(f"{path}.{name}", text, longest=LONGEST_LABEL_VALUE)
    return labels


def _topic(path: str, value: object) -> str:
    topic = printable(path, value, longest=LONGEST_TOPIC)
    if not topic.strip():
        raise FieldError(path, value, "is empty")
    return topic


# ---- workers and tenants -------------------------------------------------------------------------


def check_worker(pool: str, labels: Mapping[str, str], capabilities: Sequence[str]) -> None:
    """Raise FieldError unless a worker may have this pool, these labels and these capabilities."""
    schedule_name("worker.pool", pool)
    read_labels("worker.labels", labels)
    read_capabilities(FieldReader({"capabilities": capabilities}, ("capabilities",), path="worker"), "capabilities")


def check_limits(limits: Mapping[str, int]) -> None:
    """Raise FieldError unless each limit is in range. 0 is refused: such a tenant would never run anything."""
    for tenant, most in limits.items():
        if not 1 <= most <= MAX_IN_FLIGHT_LIMIT:
            raise FieldError(f"routing.tenant_limits.{tenant}", most, f"must be from 1 to {MAX_IN_FLIGHT_LIMIT}")


# ---- the table of pools --------------------------------------------------------------------------


def read_pools(value: object) -> Pools:
    """Read the table of pools; raise FieldError, which names the first wrong field by its path."""
    fields = FieldReader(value, ("topics", "pools"))
    topics = _mapping(fields, "topics", MOST_TOPICS)
    if not topics:
        raise fields.refused("topics", "names no topic" if "topics" in fields else "is missing")
    return Pools(
        topics={_topic("topics", topic): _names(f"topics.{topic}", pools) for topic, pools in topics.items()},
        capabilities={
            schedule_name("pools", name): _capabilities(f"pools.{name}", about)
            for name, about in _mapping(fields, "pools", MOST_POOLS).items()
        },
    )


def _mapping(fields: FieldReader, field: str, most: int) -> Mapping[Any, Any]:
    if field not in fields:
        return {}
    value = fields[field]
    if not isinstance(value, Mapping):
        raise fields.refused(field, "must be a mapping")
    if len(value) > most:
        raise fields.refused(field, f"has {len(value)} entries; at most {most} are allowed")
    return value


def _names(path: str, value: object) -> tuple[str, ...]:
    """The pools of a topic: one name, or a list."""
    if not isinstance(value, list | tuple):
        return (schedule_name(path, value),)
    if not value:
        raise FieldError(path, value, "names no pool")
    return tuple(dict.fromkeys(schedule_name(f"{path}[{index}]", name) for index, name in enumerate(value)))


def _capabilities(path: str, value: object) -> frozenset[str]:
    return (
        frozenset()
        if value is None
        else frozenset(read_capabilities(FieldReader(value, ("requires",), path=path), "requires"))
    )
