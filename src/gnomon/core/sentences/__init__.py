"""English for schedules: `read` turns a sentence into cron or an interval, `describe` turns cron into one."""

from gnomon.core.sentences.meaning import Calendar, Interval
from gnomon.core.sentences.reading import read
from gnomon.core.sentences.writing import describe

__all__ = ["Calendar", "Interval", "describe", "read"]
