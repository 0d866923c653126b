"""The values of announcements: what a job asks for, and the record of each announcement."""

from enum import StrEnum

from msgspec import Struct


class AnnounceMoment(StrEnum):
    """A moment of a job at which a channel gets a message."""

    SUCCESS = "success"
    FAILURE = "failure"
    #: The first success after failures that were announced.
    RECOVERY = "recovery"
    #: A tick was missed: too late to run, by the catch-up policy.
    MISSED = "missed"
    #: A tick was skipped, because another run was active or the queue was full.
    SKIPPED = "skipped"
    #: A task of it waits for an approval.
    APPROVAL = "approval"


class AnnounceRule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry of the field `announce` of a job: the channel, the moments and the text."""

    #: The name of a channel in the settings.
    channel: str
    #: The recipient within the channel; empty for that of the channel.
    to: str = ""
    on: tuple[AnnounceMoment, ...] = (AnnounceMoment.SUCCESS, AnnounceMoment.FAILURE)
    #: Failures are announced from this one in a row on.
    after: int = 1
    #: If not, a run is over when it is announced, and fails if it cannot be.
    best_effort: bool = True
    #: The text, with references; None for the output or the error.
    text: str | None = None


class AnnouncementState(StrEnum):
    """The state of an announcement."""

    #: It is to be sent, or is being sent.
    PENDING = "pending"
    SENT = "sent"
    #: There was nothing to say.
    SILENT = "silent"
    #: It could not be sent, and is not tried any more.
    GIVEN_UP = "given_up"


class AnnouncedApproval(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The question that a task has raised, as a channel shows it."""

    approval_id: str
    step: str
    #: How many items it is about; 0 for one task.
    items: int = 0
    rule: str
    reason: str = ""
    #: The votes that it needs, in words.
    needs: str
    expires_at: int
    digest: str


class AnnouncementFacts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Facts of the moment: no other record has them, or they may have changed when the announcement is sent."""

    #: The error of the run.
    error: str | None = None
    #: How many runs have failed in a row: with this one, or before this success.
    failures: int = 0
    #: The reason of the decision on a tick, how many ticks it is about, and the planned time of the last of them.
    reason: str | None = None
    count: int = 1
    last_at: int | None = None
    #: For a task that waits for an approval: what is asked.
    approval: AnnouncedApproval | None = None


class Announcement(Struct, frozen=True, kw_only=True):
    """One announcement: stored in the transaction of its moment, and sent later."""

    announcement_id: str
    tenant: str
    #: The job, or the workflow if it was run without one.
    job: str
    #: The run; None if it is about a tick without one.
    run_id: str | None
    schedule_uid: str | None
    #: The planned time of the run or of the first tick.
    planned_at: int
    moment: AnnounceMoment
    channel: str
    recipient: str
    template: str | None
    best_effort: bool
    facts: AnnouncementFacts
    state: AnnouncementState = AnnouncementState.PENDING
    #: How many parts of its text have been sent, and how many tries have failed.
    parts_sent: int = 0
    tries: int = 0
    #: When it is tried next.
    next_at: int
    #: It is given up some time after this: its creation, or a request to try again.
    since_at: int
    created_at: int
    ended_at: int | None = None
    #: Why it was not sent, or the last failure.
    note: str | None = None
    #: The number of its last claim: a sender with an older one has lost it.
    fence: int = 0

    @property
    def over(self) -> bool:
        """Whether it is not tried any more."""
        return self.state is not AnnouncementState.PENDING

    @property
    def holds_run(self) -> bool:
        """Whether its run is not over before it is."""
        return self.run_id is not None and not self.best_effort
