"""The field `announce` of a job, and the field `delivery` of the command `gnomon cron`, which means the same."""

from collections.abc import Mapping
from typing import Any

from gnomon.core.announcements.model import AnnounceMoment, AnnounceRule
from gnomon.core.announcements.text import LONGEST_TEMPLATE, check_template
from gnomon.core.jobs.fields import FieldReader, is_storable, printable
from gnomon.core.jobs.synonyms import unknown_choice
from gnomon.errors import FieldError

ANNOUNCE_FIELDS = ("channel", "to", "on", "after", "best_effort", "text")
DELIVERY_FIELDS = ("mode", "channel", "to", "best_effort")
MOST_ANNOUNCEMENTS = 20
MOST_FAILURES = 1000
LONGEST_CHANNEL, LONGEST_RECIPIENT = 64, 1000
_USUAL = AnnounceRule(channel="")
#: The modes of a delivery that delivers nothing.
_NO_DELIVERY = ("", "none")


def read_announcements(fields: FieldReader, steps: frozenset[str]) -> tuple[AnnounceRule, ...]:
    """The field `announce`: a channel, a mapping, or a list of these. `steps` are those of the workflow."""
    if "announce" not in fields:
        return ()
    value, path = fields["announce"], fields.at("announce")
    if not isinstance(value, list | tuple):
        return (_read_rule(path, value, steps),)
    rules = [_read_rule(at, entry, steps) for at, entry in fields.entries("announce", most=MOST_ANNOUNCEMENTS)]
    if not rules:
        raise fields.refused("announce", "names no channel")
    for number, rule in enumerate(rules):
        if rule in rules[:number]:
            raise FieldError(f"{path}[{number}]", rule.channel, "is named a second time, with the same fields")
    return tuple(rules)


def _read_rule(path: str, value: object, steps: frozenset[str]) -> AnnounceRule:
    if isinstance(value, str):
        return AnnounceRule(channel=_channel(path, value))
    if not isinstance(value, Mapping):
        raise FieldError(path, value, f"must be a channel, or a mapping with {', '.join(ANNOUNCE_FIELDS)}")
    fields = FieldReader(value, ANNOUNCE_FIELDS, path=path)
    return AnnounceRule(
        channel=_channel(fields.at("channel"), fields.required("channel")),
        to=_recipient(fields),
        on=_moments(fields),
        after=fields.whole("after", 1, low=1, high=MOST_FAILURES),
        best_effort=fields.flag("best_effort", default=True),
        text=_text(fields, steps),
    )


def _channel(path: str, value: object) -> str:
    name = printable(path, value, longest=LONGEST_CHANNEL).lower()
    if not name:
        raise FieldError(path, value, "names no channel")
    return name


def _recipient(fields: FieldReader) -> str:
    if "to" not in fields:
        return ""
    value = fields["to"]
    # The ids of chats are numbers.
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    to = printable(fields.at("to"), text, longest=LONGEST_RECIPIENT)
    if not to.strip():
        raise fields.refused("to", "names no recipient")
    return to


def _moments(fields: FieldReader) -> tuple[AnnounceMoment, ...]:
    if "on" not in fields:
        return _USUAL.on
    if isinstance(fields["on"], str):
        return (fields.choice("on", AnnounceMoment, AnnounceMoment.FAILURE),)
    moments = []
    for path, value in fields.entries("on"):
        if value not in tuple(AnnounceMoment):
            raise FieldError(path, value, unknown_choice(str(value), list(AnnounceMoment)))
        moments.append(AnnounceMoment(str(value)))
    if not moments or len(set(moments)) < len(moments):
        raise fields.refused("on", f"must name some of {', '.join(AnnounceMoment)}, each once")
    return tuple(moments)


def _text(fields: FieldReader, steps: frozenset[str]) -> str | None:
    if "text" not in fields:
        return None
    value, path = fields["text"], fields.at("text")
    if not isinstance(value, str) or not value.strip():
        raise fields.refused("text", "must be a text")
    if len(value) > LONGEST_TEMPLATE:
        raise fields.refused("text", f"has {len(value)} characters; at most {LONGEST_TEMPLATE} are allowed")
    if not is_storable(value):
        raise fields.refused("text", "has a character that cannot be stored")
    check_template(path, value, steps)
    return value


def announcements_as_data(rules: tuple[AnnounceRule, ...]) -> Any:  # noqa: ANN401 - a text, a mapping or a list
    """The value of the field `announce` that defines these rules."""
    written = [_rule_as_data(rule) for rule in rules]
    return written[0] if len(written) == 1 else written


def _rule_as_data(rule: AnnounceRule) -> str | dict[str, Any]:
    if rule == AnnounceRule(channel=rule.channel):
        return rule.channel
    fields = (
        ("to", rule.to, _USUAL.to),
        ("on", [moment.value for moment in rule.on], [moment.value for moment in _USUAL.on]),
        ("after", rule.after, _USUAL.after),
        ("best_effort", rule.best_effort, _USUAL.best_effort),
        ("text", rule.text, _USUAL.text),
    )
    return {"channel": rule.channel, **{field: value for field, value, usual in fields if value != usual}}


def read_delivery(path: str, value: object) -> AnnounceRule | None:
    """The field `delivery` of `gnomon cron`: `{mode: announce, channel, to, best_effort}`; None for no announcement.

    The mode is read whatever its case. FieldError names what is wrong in the words of the scheduler that it is from.
    """
    fields = FieldReader(value, DELIVERY_FIELDS, path=path)
    mode = fields.text("mode", "").strip().lower()
    if mode in _NO_DELIVERY:
        return None
    if mode != "announce":
        raise fields.refused("mode", "must be announce or none")
    for field in ("channel", "to"):
        if field not in fields or not str(fields[field]).strip():
            raise FieldError(fields.at(field), None, f"is missing: delivery.{field} is required for announce mode")
    return AnnounceRule(
        channel=_channel(fields.at("channel"), fields["channel"]),
        to=_recipient(fields),
        best_effort=fields.flag("best_effort", default=True),
    )
