"""`gnomon why`: explain why a job ran or did not run."""

from textwrap import wrap

from gnomon.cli.actions.executions import attempt_took
from gnomon.cli.output import Format, first_line, format_instant, print_data, print_table, printable
from gnomon.cli.target import Target, echo, send
from gnomon.client import requests
from gnomon.core.explain.evidence import ExplanationKind
from gnomon.core.explain.phrases import instant_phrase
from gnomon.core.instants import ms_of
from gnomon.core.responses.why import WhyAnswer, WhyAttempt, WhyMoment
from gnomon.errors import UsageError

_WIDTH = 100
#: The number of attempts of a run that are printed: the last ones.
_MOST_ATTEMPTS = 10


def why(job: str, at: str | None, last: int | None, target: Target, form: Format) -> None:
    """Print the explanation of one time, or of the last ticks and the next run."""
    if at is not None and last is not None:
        raise UsageError("--at explains one time and --last the newest ticks: use one of them")
    answer = send(target, requests.why(job, at=at, last=last))
    show(answer, form)


def show(answer: WhyAnswer, form: Format) -> None:
    """Print the explanation."""
    if form is not Format.TABLE:
        print_data(answer, form)
        return
    echo(printable(f"{answer.job}: {answer.schedule}"))
    for one in answer.explanations:
        _print(one)
    if answer.more:
        echo(f"\n... and {answer.more} more in that time: narrow it down")
    if answer.forgotten_before is not None:
        echo(f"\nhistory from before {instant_phrase(ms_of(answer.forgotten_before), answer.timezone)} is not kept")
    if answer.coming is not None:
        _print(answer.coming, "next: " if answer.coming.kind == ExplanationKind.NO_TICK else "")


def _print(one: WhyMoment, lead: str = "") -> None:
    echo(f"\n{lead or _heading(one) + '  '}{one.kind.replace('_', ' ')}")
    for sentence in (one.sentence, *one.waits):
        for line in wrap(printable(sentence), _WIDTH, initial_indent="  ", subsequent_indent="  "):
            echo(line)
    if one.attempts:
        rows = [[f"  {_step(attempt)}", *_row(attempt, one.timezone)] for attempt in one.attempts[-_MOST_ATTEMPTS:]]
        print_table(["  step", "fence", "worker", "started", "took", "ended", "error"], rows)


def _heading(one: WhyMoment) -> str:
    """The time in the schedule's zone, and in UTC if that differs."""
    local = instant_phrase(ms_of(one.at), one.timezone)
    if local.endswith(" UTC"):
        return local
    utc = instant_phrase(ms_of(one.at), "UTC")
    same_day = utc[: len("Mon 2026-03-02")] == local[: len("Mon 2026-03-02")]
    return f"{local} ({utc.split(' ', 2)[2] if same_day else utc})"


def _step(attempt: WhyAttempt) -> str:
    return attempt.step if attempt.item is None else f"{attempt.step}[{attempt.item}]"


def _row(attempt: WhyAttempt, zone: str) -> list[str]:
    return [
        str(attempt.fence),
        attempt.worker,
        format_instant(attempt.started_at, zone),
        attempt_took(attempt),
        attempt.result or "",
        first_line(attempt.error),
    ]
