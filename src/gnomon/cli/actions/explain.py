"""`gnomon explain`: a schedule in English, as cron, and its next fires."""

import sys
from dataclasses import dataclass
from datetime import UTC, datetime

from gnomon.cli.output import Format, print_data, print_table
from gnomon.core.cron import Cron, Dialect
from gnomon.core.cron.clock_changes import ClockChange, clock_changes
from gnomon.core.explain.schedules import next_fires, parsed_schedule
from gnomon.core.instants import in_zone
from gnomon.core.triggers import At, Every


@dataclass(frozen=True, slots=True)
class ScheduleExplanation:
    """A schedule, its next fires after an instant, and the clock changes that affect them."""

    text: str
    trigger: Cron | Every | At
    timezone: str
    #: The requested number of fires, and the fires found.
    requested: int
    fires: tuple[datetime, ...]
    changes: tuple[ClockChange, ...]

    @property
    def sentence(self) -> str:
        """The schedule in English."""
        words = self.trigger.describe()
        return words[0].upper() + words[1:]

    @property
    def cron(self) -> str | None:
        """The canonical cron expression; None if cron cannot express the schedule."""
        return self.trigger.canonical if isinstance(self.trigger, Cron) else None

    def local(self, instant: datetime) -> datetime:
        """The instant in the schedule's time zone."""
        return in_zone(instant, self.timezone)

    def notes(self) -> list[str]:
        """For each fire, the clock changes of its day; each change is noted once, at the first fire after it."""
        notes = [""] * len(self.fires)
        for change in self.changes:
            that_day = [i for i, fire in enumerate(self.fires) if self.local(fire).date() in _days(change)]
            if that_day:
                place = next((i for i in that_day if self.fires[i] >= change.at), that_day[-1])
                notes[place] = "; ".join(filter(None, (notes[place], change.describe())))
        return notes


def explained(text: str, *, timezone: str | None, dialect: Dialect, count: int, now: datetime) -> ScheduleExplanation:
    """The explanation of `text`; an interval is assumed to start now."""
    trigger = parsed_schedule(text, timezone=timezone, dialect=dialect, now=now)
    fires = tuple(next_fires(trigger, now, count))
    changes: tuple[ClockChange, ...] = ()
    if isinstance(trigger, Cron) and fires:
        days = {in_zone(fire, trigger.timezone).date() for fire in fires}
        found = clock_changes(trigger, after=now, until=fires[-1])
        changes = tuple(change for change in found if change.effect != "none" or days & _days(change))
    zone = trigger.timezone if isinstance(trigger, Cron) else timezone or "UTC"
    return ScheduleExplanation(text, trigger, zone, count, fires, changes)


def show(explanation: ScheduleExplanation, form: Format) -> None:
    """Print the explanation."""
    if form is Format.TABLE:
        _show_text(explanation)
    else:
        print_data(_as_data(explanation), form)


def _days(change: ClockChange) -> set[object]:
    return {change.at.date(), change.instead_of.date()}


def _show_text(explanation: ScheduleExplanation) -> None:
    write = sys.stdout.write
    write(f"{explanation.sentence}\n")
    if explanation.cron:
        write(f"cron  {explanation.cron}\n")
    elif isinstance(explanation.trigger, Every):
        write("cron  cannot say this evenly: it is an interval, shown as if it started now\n")
    write(f"zone  {explanation.timezone}\n")
    write("\n" if explanation.requested else "")
    if not explanation.fires:
        write("no fires to come\n" if explanation.requested else "")
        return
    rows = [
        [_readable(explanation.local(fire)), _readable(fire), note]
        for fire, note in zip(explanation.fires, explanation.notes(), strict=True)
    ]
    noted = any(row[2] for row in rows)
    print_table(["local", "utc", "note"] if noted else ["local", "utc"], rows if noted else [row[:2] for row in rows])
    shown = {explanation.local(fire).date() for fire in explanation.fires}
    for change in explanation.changes:
        if not shown & _days(change):
            write(f"\n{change.at:%a %Y-%m-%d}: {change.describe()}\n")


def _readable(instant: datetime) -> str:
    shape = "%a %Y-%m-%d %H:%M:%S" if instant.second or instant.microsecond else "%a %Y-%m-%d %H:%M"
    fraction = f".{instant.microsecond // 1000:03d}" if instant.microsecond else ""
    return f"{instant:{shape}}{fraction} {instant:%Z}"


def _as_data(explanation: ScheduleExplanation) -> dict[str, object]:
    trigger = explanation.trigger
    data: dict[str, object] = {
        "text": explanation.text,
        "kind": {Cron: "cron", Every: "every", At: "at"}[type(trigger)],
        "sentence": explanation.sentence,
        "cron": explanation.cron,
        "timezone": explanation.timezone,
    }
    if isinstance(trigger, Cron):
        data |= {"dialect": trigger.dialect, "dst": {"gap": trigger.dst.gap, "fold": trigger.dst.fold}}
    if isinstance(trigger, Every):
        data["every_ms"] = round(trigger.period.total_seconds() * 1000)
    return data | {
        "fires": [
            {"local": explanation.local(fire).isoformat(), "utc": fire.astimezone(UTC)} for fire in explanation.fires
        ],
        "clock_changes": [
            {"at": change.at.isoformat(), "effect": change.effect, "sentence": change.describe()}
            for change in explanation.changes
        ],
    }
