"""Schedules in English: `parse_sentence` turns a sentence into cron or an interval, `describe` turns cron into one."""

from gnomon.core.english.compiler import Calendar, Interval
from gnomon.core.english.describe import describe
from gnomon.core.english.parser import parse_sentence

__all__ = ["Calendar", "Interval", "describe", "parse_sentence"]
