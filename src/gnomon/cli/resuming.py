"""`gnomon jobs resume`: letting a job go on, and what becomes of the runs that its pause swallowed."""

from gnomon.cli.offices import Where, at_door, say
from gnomon.cli.output import Format, print_data
from gnomon.cli.readable import moment
from gnomon.cli.starts import start_of
from gnomon.client import requests
from gnomon.client.transport import Ask
from gnomon.core.durations import duration_ms
from gnomon.core.ledger.edits import Missed
from gnomon.core.responses import JobResumed
from gnomon.doors import Door
from gnomon.errors import FieldError

_CHOICES = "skip, latest, all, since INSTANT or spread SPAN"


def resume(name: str, missed: str, value: str | None, where: Where, form: Format) -> None:
    """Let a job go on."""

    async def work(door: Door) -> JobResumed:
        zone = (await door.ask(requests.job(name, coming=0, last=0))).timezone
        return await door.ask(_wish(name, missed, value, zone))

    done = at_door(where, work)
    if form is not Format.TABLE:
        print_data(done, form)
        return
    coming = moment(next(iter(done.next_runs), None), done.timezone)
    say(f"{name} goes on; its next run is at {coming}" if coming else f"{name} goes on; nothing is planned")
    _tell_swallowed(name, done)


def _wish(name: str, missed: str, value: str | None, zone: str) -> Ask[JobResumed]:
    word, _, rest = missed.strip().partition(" ")
    given = value if value is not None else rest.strip() or None
    if word not in list(Missed) or (rest and value is not None):
        raise FieldError("--missed", missed, f"is none of {_CHOICES}")
    if (given is not None) != (word in (Missed.SINCE, Missed.SPREAD)):
        raise FieldError("--missed", missed if given is None else f"{word} {given}", f"is none of {_CHOICES}")
    if word == Missed.SINCE:
        since = start_of(given, timezone=zone, option="--missed since")
        return requests.resume(name, missed=word, since=since)
    if word == Missed.SPREAD:
        duration_ms("--missed spread", given)
    return requests.resume(name, missed=word, over=given)


def _tell_swallowed(name: str, done: JobResumed) -> None:
    gone, zone = done.swallowed, done.timezone
    if gone.first_at is None or gone.last_at is None:
        return
    first, last = moment(gone.first_at, zone), moment(gone.last_at, zone)
    runs = "1 run" if gone.count == 1 else f"{gone.count} runs"
    say(f"the pause swallowed {runs}" + (f", from {first} to {last}" if gone.count > 1 else f", at {first}"))
    if done.runs:
        left = gone.count - done.runs
        say(f"{done.runs} of them will take place after all" + (f"; {left} will not" if left else ""))
    else:
        bounds = f"--from {gone.first_at.isoformat()} --to {gone.last_at.isoformat()}"
        say(f"to run them: gnomon jobs backfill {name} {bounds}")
