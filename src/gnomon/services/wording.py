"""Schedules in words, kept at hand: listings say the same ones again and again."""

from gnomon.core.cron import Cron
from gnomon.core.model import Spec

#: Sentences by expression, zone and dialect.
_SENTENCES: dict[tuple[str, str, str], str] = {}
_MOST_SENTENCES = 4096


def in_words(spec: Spec) -> str:
    """When a schedule fires, in one sentence."""
    trigger = spec.trigger
    if not isinstance(trigger, Cron):
        return trigger.describe()
    key = trigger.expression, trigger.timezone, trigger.dialect
    found = _SENTENCES.get(key)
    if found is None:
        if len(_SENTENCES) >= _MOST_SENTENCES:
            _SENTENCES.clear()
        found = _SENTENCES[key] = trigger.describe()
    return found


def as_cron(spec: Spec) -> str | None:
    """When a schedule fires, as cron; None if it is nothing that cron can say."""
    return spec.trigger.expression if isinstance(spec.trigger, Cron) else None
