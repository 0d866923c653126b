"""The work behind each command; a command imports its action when it runs."""
