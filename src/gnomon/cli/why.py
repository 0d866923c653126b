"""`gnomon why`: what a job did at a moment or last of all, or why it did nothing."""

from textwrap import wrap

from gnomon.cli.executions import attempt_took
from gnomon.cli.offices import Where, in_office, say
from gnomon.cli.output import Format, print_data, print_table, visible
from gnomon.cli.readable import first_line, moment
from gnomon.core.explaining.evidence import Answer, Explanation, Kind
from gnomon.core.explaining.words import when
from gnomon.core.model import Attempt, Task
from gnomon.errors import UsageError
from gnomon.services.why_answering import tried, why_answer

_WIDTH = 100
_USUAL = 3
#: How many attempts of a run are printed, the last ones.
_MOST_ATTEMPTS = 10


def why(job: str, at: str | None, last: int | None, where: Where, form: Format) -> None:
    """Explain a moment of a job, or what it did last and will do next."""
    if at is not None and last is not None:
        raise UsageError("--at asks about a moment and --last about the newest: say one of them")
    answer = in_office(
        where,
        lambda office: office.explainer.last(job, last or _USUAL) if at is None else office.explainer.at(job, at),
    )
    show(answer, form)


def show(answer: Answer, form: Format) -> None:
    """Print the answer."""
    if form is not Format.TABLE:
        print_data(why_answer(answer), form)
        return
    say(visible(f"{answer.job}: {answer.schedule}"))
    for one in answer.explanations:
        _print(one)
    if answer.more:
        say(f"\n... and {answer.more} more in that time: name it more exactly")
    if answer.coming is not None:
        _print(answer.coming, "next: " if answer.coming.kind is Kind.NO_TICK else "")


def _print(one: Explanation, lead: str = "") -> None:
    say(f"\n{lead or _heading(one) + '  '}{one.kind.replace('_', ' ')}")
    for sentence in (one.sentence, *one.waits):
        for line in wrap(visible(sentence), _WIDTH, initial_indent="  ", subsequent_indent="  "):
            say(line)
    attempts = tried(one)
    if attempts:
        rows = [[f"  {_step(task)}", *_row(attempt, one.timezone)] for task, attempt in attempts[-_MOST_ATTEMPTS:]]
        print_table(["  step", "fence", "worker", "started", "took", "ended", "error"], rows)


def _heading(one: Explanation) -> str:
    """The time on the clocks of the schedule, and in UTC if that is another."""
    local = when(one.at, one.timezone)
    if local.endswith(" UTC"):
        return local
    utc = when(one.at, "UTC")
    same_day = utc[: len("Mon 2026-03-02")] == local[: len("Mon 2026-03-02")]
    return f"{local} ({utc.split(' ', 2)[2] if same_day else utc})"


def _step(task: Task) -> str:
    return task.step if task.item is None else f"{task.step}[{task.item}]"


def _row(attempt: Attempt, zone: str) -> list[str]:
    return [
        str(attempt.number),
        attempt.worker,
        moment(attempt.started_at, zone),
        attempt_took(attempt),
        "" if attempt.result is None else attempt.result.value,
        first_line(attempt.error),
    ]
