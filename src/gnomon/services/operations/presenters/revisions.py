"""Presents the revisions of jobs."""

from gnomon.core.instants import instant_of
from gnomon.core.responses.revisions import JobRevision, RevisedField
from gnomon.services.operations.job_revisions import RevisionView
from gnomon.services.operations.presenters.jobs import job_definition


def job_revision(view: RevisionView) -> JobRevision:
    """A revision of a job."""
    one = view.revision
    spec, changes = one.schedule.spec, view.changes
    return JobRevision(
        revision=one.revision,
        version=spec.workflow_version,
        from_at=instant_of(one.from_at),
        actor=one.actor,
        origin=spec.origin,
        tzdata=one.tzdata,
        definition=job_definition(one.schedule, view.workflow),
        changes=None
        if changes is None
        else [RevisedField(field=f.field, before=f.before, after=f.after) for f in changes],
    )
