"""The digest of a plan covers the request and the jobs it changes: `apply` refuses if one has changed since."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gnomon.errors import FieldError, PlanChanged
from gnomon.services.operations.job_changes import JobChangePlan

#: The digest of everything, and behind it a short one of each job, which tells the jobs that have changed.
_DIGEST = re.compile(r"([0-9a-f]{64})\.((?:[0-9a-f]{8})*)")
_SHORT = 8
#: The fields of a request that belong to its plan.
PLANNED_FIELDS = ("jobs", "prune", "prune_tag")


def plan_digest(request: Mapping[str, Any], plans: Sequence[JobChangePlan]) -> str:
    """The digest of the plans for a request; two have the same if they make the same changes to the same jobs."""
    states = [_state(plan) for plan in plans]
    # A missing option means what its default says.
    said = [request.get(field) or None for field in PLANNED_FIELDS]
    whole = _hash(json.dumps(said, sort_keys=True, separators=(",", ":")), *states)
    return f"{whole}.{''.join(_short(state) for state in states)}"


def check_plan_digest(digest: str, request: Mapping[str, Any], plans: Sequence[JobChangePlan]) -> None:
    """Raise PlanChanged with the jobs that have changed if the digest is of another plan; FieldError if of none."""
    read = _DIGEST.fullmatch(digest)
    if read is None:
        raise FieldError("plan", digest, "is not the digest of a plan")
    if digest == plan_digest(request, plans):
        return
    shorts = read[2]
    known = Counter(shorts[start : start + _SHORT] for start in range(0, len(shorts), _SHORT))
    changed = [plan.schedule.schedule_id for plan in plans if not known[_short(_state(plan))]]
    raise PlanChanged(changed, gone=max(0, known.total() - len(plans)))


def _state(plan: JobChangePlan) -> str:
    """The change of a job, and the stored job that it changes."""
    standing = plan.standing
    before: list[Any] = []
    if standing is not None:
        before = [standing.uid, standing.revision, standing.paused_at is not None, standing.spec.workflow_version]
    after = [plan.schedule.schedule_id, plan.change.value, plan.schedule.spec.workflow_version]
    return json.dumps([before, after])


def _short(state: str) -> str:
    return _hash(state)[:_SHORT]


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
