"""`gnomon announcements`: list and show announcements, and retry those that were given up."""

from gnomon.app.gateway import Gateway
from gnomon.cli.ids import announcement_of
from gnomon.cli.output import Format, first_line, format_fields, format_instant, print_data, print_list
from gnomon.cli.target import Target, echo, list_all, page_size, with_gateway, zone_of_job
from gnomon.client import requests
from gnomon.core.responses.announcements import AnnouncementSummary


def list_announcements(job: str | None, state: str | None, limit: int, target: Target, form: Format) -> None:
    """Print announcements."""

    async def work(gateway: Gateway) -> tuple[list[AnnouncementSummary], str | None]:
        wanted = requests.announcements(job=job, state=state, page=page_size(limit))
        return await list_all(gateway, wanted, limit), await zone_of_job(gateway, job)

    found, zone = with_gateway(target, work)
    columns = ["announcement", "job", "moment", "channel", "state", "planned", "failed tries", "note"]
    print_list(found, form, columns, lambda one: _row(one, zone), none="no announcements")


def _row(one: AnnouncementSummary, zone: str | None) -> list[str]:
    return [
        one.announcement_id,
        one.job,
        one.moment,
        one.channel,
        one.state.replace("_", " "),
        format_instant(one.planned_at, zone),
        str(one.tries),
        first_line(one.note),
    ]


def show(announcement_id: str, target: Target, form: Format) -> None:
    """Print an announcement."""

    async def work(gateway: Gateway) -> tuple[AnnouncementSummary, str | None]:
        found = await gateway.send(requests.announcement(await announcement_of(gateway, announcement_id)))
        return found, await zone_of_job(gateway, found.job) if form is Format.TABLE else None

    found, zone = with_gateway(target, work)
    if form is Format.TABLE:
        echo("\n".join(format_fields(_fields(found, zone))))
    else:
        print_data(found, form)


def retry(announcement_id: str, target: Target, form: Format) -> None:
    """Try an announcement again that was given up."""

    async def work(gateway: Gateway) -> AnnouncementSummary:
        return await gateway.send(requests.retry_announcement(await announcement_of(gateway, announcement_id)))

    again = with_gateway(target, work)
    if form is Format.TABLE:
        echo(f"{again.announcement_id} is tried again")
    else:
        print_data(again, form)


def announced_text(announced: str | None) -> str:
    """Whether an execution was announced, in words; empty if it is not to be announced."""
    return {"given_up": "not announced", "pending": "to be announced", "sent": "announced"}.get(announced or "", "")


def announcement_line(one: AnnouncementSummary) -> str:
    """The announcement in one line."""
    recipient = f" ({one.to})" if one.to else ""
    return f"{one.moment} to {one.channel}{recipient}: {one.state.replace('_', ' ')}" + (
        f": {first_line(one.note)}" if one.note else ""
    )


def _fields(one: AnnouncementSummary, zone: str | None) -> list[tuple[str, str]]:
    return [
        ("announcement", one.announcement_id),
        ("job", one.job),
        ("execution", one.execution_id or "none"),
        ("planned", format_instant(one.planned_at, zone)),
        ("moment", one.moment),
        ("channel", one.channel),
        ("to", one.to or "the recipient of the channel"),
        ("state", one.state.replace("_", " ")),
        ("parts sent", str(one.parts_sent)),
        ("failed tries", str(one.tries)),
        ("next try", format_instant(one.next_try_at, zone)),
        ("created", format_instant(one.created_at, zone)),
        ("ended", format_instant(one.ended_at, zone)),
        ("note", one.note or ""),
        ("best effort", "yes" if one.best_effort else "no: its execution waits for it"),
    ]
