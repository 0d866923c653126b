"""For testing schedules and schedulers: a clock that moves when told, a simulator, and a checker of histories."""
