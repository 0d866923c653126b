"""The names of the verbs that a model may be given. `gnomon.core.verbs` says what each of them does."""

READING_VERBS = (
    "list_jobs", "show_job", "explain_job", "explain_schedule", "plan_jobs", "simulate_jobs", "list_executions",
    "show_execution", "list_log_entries",
)  # fmt: skip
CHANGING_VERBS = ("register_job", "pause_job", "resume_job", "trigger_job")
