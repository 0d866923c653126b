"""How a task is executed: functions on a loop, on a thread, or in a process of their own."""
