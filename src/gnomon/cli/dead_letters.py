"""`gnomon dead-letters`: what has failed for good."""

from gnomon.cli.executions import attempt_took
from gnomon.cli.offices import Where, actor, in_office, say
from gnomon.cli.output import Format, print_data, print_table
from gnomon.cli.readable import facts, first_line, moment
from gnomon.core.model import DeadLetter
from gnomon.errors import UsageError
from gnomon.office import Office
from gnomon.services import answering
from gnomon.services.answering import dead_letter, dead_letter_detail, started
from gnomon.services.dead_letters import DeadLetterView, Replayed


def list_letters(job: str | None, limit: int, where: Where, form: Format, *, unresolved: bool) -> None:
    """List dead letters."""
    found = in_office(where, lambda office: office.dead_letters.page(job=job, unresolved=unresolved, limit=limit))
    if form is not Format.TABLE:
        print_data([dead_letter(letter) for letter in found], form)
        return
    if not found:
        say("no dead letters")
        return
    rows = [
        [
            letter.dead_letter_id,
            letter.job,
            _state(letter),
            letter.reason.replace("_", " "),
            str(letter.attempts),
            moment(letter.last_attempt_at),
            first_line(letter.last_error),
        ]
        for letter in found
    ]
    print_table(["dead letter", "job", "state", "why", "attempts", "last attempt", "last error"], rows)


def show(dead_letter_id: str, where: Where, form: Format) -> None:
    """Show a dead letter with every attempt."""
    view = in_office(where, lambda office: office.dead_letters.get(dead_letter_id))
    if form is not Format.TABLE:
        print_data(dead_letter_detail(view), form)
        return
    say("\n".join(facts(_told(view))))
    if view.run is None:
        return
    say("")
    rows = [
        [
            str(one.number),
            one.worker,
            moment(one.started_at),
            attempt_took(one),
            "" if one.result is None else one.result.value,
            first_line(one.error),
        ]
        for one in view.attempts
    ]
    print_table(["attempt", "worker", "started", "took", "ended", "error"], rows)


def chosen(dead_letter_id: str | None, job: str | None, key: str | None, *, everything: bool) -> str | None:
    """The one that is to be replayed; None for all of them."""
    if dead_letter_id is None and not everything:
        raise UsageError("name a dead letter, or say --all")
    if dead_letter_id is not None and (everything or job is not None):
        raise UsageError("name a dead letter, or say --all, not both; --job goes with --all")
    if everything and key is not None:
        raise UsageError("--key is for the replay of one dead letter")
    return dead_letter_id


def replay(dead_letter_id: str, key: str | None, where: Where, form: Format) -> None:
    """Run what has failed again."""
    done = in_office(where, lambda office: office.dead_letters.replay(dead_letter_id, actor=actor(), key=key))
    if form is Format.TABLE:
        say(f"{done.run_id} {done.became}")
    else:
        print_data(started(done), form)


def replay_all(job: str | None, where: Where, form: Format) -> bool:
    """Run everything again that nobody has dealt with; whether all of it could be."""
    done = in_office(where, lambda office: office.dead_letters.replay_all(actor=actor(), job=job))
    if form is Format.TABLE:
        if done:
            rows = [[one.dead_letter_id, one.job, _outcome(one), one.run_id or ""] for one in done]
            print_table(["dead letter", "job", "became", "execution"], rows)
        else:
            say("there are none to replay")
    else:
        print_data([answering.replay(one) for one in done], form)
    return all(one.refused is None for one in done)


def resolve(dead_letter_id: str, where: Where) -> None:
    """Put a dead letter away."""

    async def work(office: Office) -> bool:
        return await office.dead_letters.resolve(dead_letter_id, actor=actor())

    newly = in_office(where, work)
    say(f"{dead_letter_id} is resolved" if newly else f"{dead_letter_id} was resolved before")


def _state(letter: DeadLetter) -> str:
    if letter.resolved_at is not None:
        return "resolved"
    return "open" if letter.replayed_by is None else "replayed"


def _outcome(one: Replayed) -> str:
    return one.refused or (one.became or "")


def _told(view: DeadLetterView) -> list[tuple[str, str]]:
    letter = view.letter
    return [
        ("dead letter", letter.dead_letter_id),
        ("job", f"{letter.job}, step {letter.step}"),
        ("state", _state(letter)),
        ("why", letter.reason.replace("_", " ")),
        ("execution", letter.run_id if view.run else f"{letter.run_id}, which is no longer kept"),
        ("attempts", "" if view.run else str(letter.attempts)),
        ("last error", letter.last_error or ""),
        ("input", first_line((letter.input or b"").decode(), 200) or "the job's own"),
        ("created", moment(letter.created_at)),
        ("replayed by", letter.replayed_by or ""),
        ("resolved", f"{moment(letter.resolved_at)} by {letter.resolved_by}" if letter.resolved_at else ""),
    ]
