"""Operations behind the API and the command line: jobs, executions, dead letters, events, explanations."""
