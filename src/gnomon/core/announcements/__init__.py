"""Announcements: the messages that a channel gets about the runs and ticks of a job, their texts and their retries."""
