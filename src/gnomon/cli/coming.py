"""`gnomon schedule` without a file: the coming fires of all registered jobs on one time line."""

from datetime import datetime

from gnomon.cli.offices import Where, in_office, say
from gnomon.cli.output import Format, in_zone, print_data, print_table
from gnomon.cli.readable import zone_of
from gnomon.core.instants import instant_of, ms_of
from gnomon.core.model import MINUTE_MS
from gnomon.office import Office
from gnomon.services.answering import planned_fire
from gnomon.services.jobs import Fire


def show_upcoming(where: Where, form: Format, *, now: datetime, hours: int, limit: int) -> None:
    """Print the fires of the next hours, `limit` at most."""
    after = ms_of(now)
    until = after + hours * 60 * MINUTE_MS

    async def work(office: Office) -> list[Fire]:
        return await office.jobs.upcoming(after=after, until=until, limit=limit + 1)

    found = in_office(where, work)
    fires = found[:limit]
    if form is not Format.TABLE:
        print_data([planned_fire(fire) for fire in fires], form)
        return
    if not fires:
        say(f"nothing fires before {instant_of(until):%Y-%m-%d %H:%M UTC}")
        return
    print_table(["utc", "local", "job", "schedule"], [_row(fire) for fire in fires])
    if len(found) > limit:
        say("... and more: -n shows a longer list, --hours looks further")


def _row(fire: Fire) -> list[str]:
    instant, spec = instant_of(fire.planned_at), fire.schedule.spec
    local = in_zone(instant, zone_of(spec))
    name = fire.schedule.schedule_id
    return [f"{instant:%a %Y-%m-%d %H:%M:%S}", f"{local:%a %H:%M %Z}", name, spec.trigger.describe()]
