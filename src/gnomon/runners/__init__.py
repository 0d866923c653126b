"""Run tasks: functions on an event loop, on threads or in separate processes, and commands in a shell."""
