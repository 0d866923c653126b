"""`gnomon schedule` without a file: the coming fires of all registered jobs on one time line."""

from datetime import datetime, timedelta

from gnomon.cli.offices import Where, answer_to, say
from gnomon.cli.output import Format, in_zone, print_data, print_table
from gnomon.client import requests
from gnomon.core.responses import PlannedFire


def show_upcoming(where: Where, form: Format, *, since: datetime, hours: int, limit: int) -> None:
    """Print the fires of the hours after a time, `limit` at most."""
    found = answer_to(where, requests.planned(hours=hours, since=since, page=limit + 1)).items
    fires = found[:limit]
    if form is not Format.TABLE:
        print_data(fires, form)
        return
    if not fires:
        say(f"nothing fires before {since + timedelta(hours=hours):%Y-%m-%d %H:%M UTC}")
        return
    print_table(["utc", "local", "job", "schedule"], [_row(fire) for fire in fires])
    if len(found) > limit:
        say("... and more: -n shows a longer list, --hours looks further")


def _row(fire: PlannedFire) -> list[str]:
    local = in_zone(fire.utc, fire.timezone)
    return [f"{fire.utc:%a %Y-%m-%d %H:%M:%S}", f"{local:%a %H:%M %Z}", fire.job, fire.schedule]
