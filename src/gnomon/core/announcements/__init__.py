"""Announcements: what a channel is told about the runs and ticks of a job, in which words, and when again."""
