"""`gnomon why`: what a job did at a moment or last of all, or why it did nothing."""

from textwrap import wrap

from gnomon.cli.actions.executions import attempt_took
from gnomon.cli.output import Format, first_line, moment, print_data, print_table, visible
from gnomon.cli.target import Where, answer_to, say
from gnomon.client import requests
from gnomon.core.explain.evidence import Kind
from gnomon.core.explain.phrases import when
from gnomon.core.instants import ms_of
from gnomon.core.responses import WhyAnswer, WhyAttempt, WhyMoment
from gnomon.errors import UsageError

_WIDTH = 100
#: How many attempts of a run are printed, the last ones.
_MOST_ATTEMPTS = 10


def why(job: str, at: str | None, last: int | None, where: Where, form: Format) -> None:
    """Explain a moment of a job, or what it did last and will do next."""
    if at is not None and last is not None:
        raise UsageError("--at asks about a moment and --last about the newest: say one of them")
    answer = answer_to(where, requests.why(job, at=at, last=last))
    show(answer, form)


def show(answer: WhyAnswer, form: Format) -> None:
    """Print the answer."""
    if form is not Format.TABLE:
        print_data(answer, form)
        return
    say(visible(f"{answer.job}: {answer.schedule}"))
    for one in answer.explanations:
        _print(one)
    if answer.more:
        say(f"\n... and {answer.more} more in that time: name it more exactly")
    if answer.forgotten_before is not None:
        say(f"\nhistory from before {when(ms_of(answer.forgotten_before), answer.timezone)} is not kept")
    if answer.coming is not None:
        _print(answer.coming, "next: " if answer.coming.kind == Kind.NO_TICK else "")


def _print(one: WhyMoment, lead: str = "") -> None:
    say(f"\n{lead or _heading(one) + '  '}{one.kind.replace('_', ' ')}")
    for sentence in (one.sentence, *one.waits):
        for line in wrap(visible(sentence), _WIDTH, initial_indent="  ", subsequent_indent="  "):
            say(line)
    if one.attempts:
        rows = [[f"  {_step(attempt)}", *_row(attempt, one.timezone)] for attempt in one.attempts[-_MOST_ATTEMPTS:]]
        print_table(["  step", "fence", "worker", "started", "took", "ended", "error"], rows)


def _heading(one: WhyMoment) -> str:
    """The time on the clocks of the schedule, and in UTC if that is another."""
    local = when(ms_of(one.at), one.timezone)
    if local.endswith(" UTC"):
        return local
    utc = when(ms_of(one.at), "UTC")
    same_day = utc[: len("Mon 2026-03-02")] == local[: len("Mon 2026-03-02")]
    return f"{local} ({utc.split(' ', 2)[2] if same_day else utc})"


def _step(attempt: WhyAttempt) -> str:
    return attempt.step if attempt.item is None else f"{attempt.step}[{attempt.item}]"


def _row(attempt: WhyAttempt, zone: str) -> list[str]:
    return [
        str(attempt.fence),
        attempt.worker,
        moment(attempt.started_at, zone),
        attempt_took(attempt),
        attempt.result or "",
        first_line(attempt.error),
    ]
