"""`gnomon jobs resume`: letting a job go on, and what becomes of the runs that its pause swallowed."""

from gnomon.cli.offices import Where, actor, in_office, say
from gnomon.cli.readable import iso, moment, zone_of
from gnomon.cli.starts import start_of
from gnomon.core.durations import duration_ms
from gnomon.core.instants import ms_of
from gnomon.core.missed import Choice, Missed
from gnomon.core.model import Spec
from gnomon.errors import FieldError
from gnomon.office import Office
from gnomon.services.jobs import JobView
from gnomon.services.registrar import Resumed

_CHOICES = "skip, latest, all, since INSTANT or spread SPAN"


def resume(name: str, missed: str, value: str | None, where: Where) -> None:
    """Let a job go on."""

    async def work(office: Office) -> tuple[Resumed, JobView]:
        spec = (await office.jobs.get(name, coming=0, last=0)).schedule.spec
        done = await office.jobs.resume(name, actor=actor(), missed=_choice(missed, value, spec))
        return done, await office.jobs.get(name, coming=1, last=0)

    done, view = in_office(where, work)
    coming = moment(next(iter(view.next_runs), None), zone_of(view.schedule.spec))
    say(f"{name} goes on; its next run is at {coming}" if coming else f"{name} goes on; nothing is planned")
    _tell_swallowed(name, done, view.schedule.spec)


def _choice(missed: str, value: str | None, spec: Spec) -> Choice:
    word, _, rest = missed.strip().partition(" ")
    given = value if value is not None else rest.strip() or None
    if word not in list(Missed) or (rest and value is not None):
        raise FieldError("--missed", missed, f"is none of {_CHOICES}")
    which = Missed(word)
    if (given is not None) != (which in (Missed.SINCE, Missed.SPREAD)):
        raise FieldError("--missed", missed if given is None else f"{word} {given}", f"is none of {_CHOICES}")
    if which is Missed.SINCE:
        since = start_of(given, timezone=zone_of(spec), option="--missed since")
        return Choice(which, since_at=ms_of(since))
    return Choice(which, over_ms=duration_ms("--missed spread", given) if which is Missed.SPREAD else None)


def _tell_swallowed(name: str, done: Resumed, spec: Spec) -> None:
    gone, zone = done.swallowed, zone_of(spec)
    if not gone.count:
        return
    first, last = moment(gone.first_at, zone), moment(gone.last_at, zone)
    runs = "1 run" if gone.count == 1 else f"{gone.count} runs"
    say(f"the pause swallowed {runs}" + (f", from {first} to {last}" if gone.count > 1 else f", at {first}"))
    if done.runs:
        left = gone.count - done.runs
        say(f"{done.runs} of them will take place after all" + (f"; {left} will not" if left else ""))
    else:
        say(f"to run them: gnomon jobs backfill {name} --from {iso(gone.first_at)} --to {iso(gone.last_at)}")
