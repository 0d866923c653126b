"""Schedules in English: `parse_sentence` turns a sentence into cron or an interval, `describe` turns cron into one."""

from gnomon.core.english.compiler import CronResult, IntervalResult
from gnomon.core.english.describe import describe
from gnomon.core.english.parser import parse_sentence

__all__ = ["CronResult", "IntervalResult", "describe", "parse_sentence"]
