"""Names and values of other schedulers, and the names that they have in jobs.

They are not accepted: a definition has one spelling. An error names the right one.
"""

from collections.abc import Collection

from gnomon.core.spelling import nearest

#: The reason for a field that resembles none.
NO_FIELD = "is no field"
_FIELDS = {
    "schedule": "cron crontab cron_expr cron_expression cronexpression expression trigger when schedule_interval rrule",
    "timezone": "tz time_zone zone tzinfo",
    "every": "interval period frequency",
    "at": "run_at run_date date datetime eta",
    "on": "event events listen",
    "start_at": "start_date starts_at begin",
    "end_at": "end_date ends_at until",
    "input": "args arguments kwargs params parameters payload data vars variables body",
    "input_schema": "schema args_schema params_schema",
    "retry": "retries max_retries max_attempts attempts backofflimit retry_policy retry_delay backoff",
    "timeout": "time_limit max_duration execution_timeout max_run_time",
    "deadline": "activedeadlineseconds deadline_ms dagrun_timeout run_timeout expires_at ttl",
    "overlap": "max_instances concurrency concurrency_policy concurrencypolicy max_active_runs allow_overlap",
    "catchup": "coalesce catch_up misfire_policy misfire backfill",
    "misfire_grace": "misfire_grace_time startingdeadlineseconds grace grace_period",
    "max_parallel": "parallelism max_active_tasks max_parallelism",
    "enabled": "suspend suspended paused disabled active is_paused_upon_creation",
    "command": "cmd shell script run exec bash bash_command",
    "http": "http_request request curl fetch",
    "url": "uri address href endpoint",
    "json": "json_body payload data",
    "body": "text content raw",
    "expect": "status statuses expected_status status_code success_codes",
    "follow": "redirects follow_redirects max_redirects",
    "env": "environment envs variables_env",
    "workdir": "cwd working_dir working_directory workingdir",
    "function": "func callable target handler python_callable task method fn",
    "dag": "steps tasks jobs stages workflow graph",
    "depends_on": "depends needs after upstream requires_step dependencies",
    "step": "id name task_id key",
    "foreach": "matrix map expand with_items for_each loop",
    "if": "condition only_if",
    "when": "trigger_rule run_if",
    "name": "id job job_id title dag_id task_id",
    "description": "desc doc docs comment notes summary",
    "tags": "tag",
    "pool": "queue worker_pool task_queue executor",
    "labels": "node_selector nodeselector selector affinity",
    "priority": "weight priority_weight nice",
    "delivery": "guarantee semantics acks_late",
    "dead_letter": "dlq dead_letters deadletter dead_letter_queue",
    "ping": "healthcheck heartbeat_url webhook monitor",
    "announce": "notify notification notifications alert alerts on_failure on_success mailto email_on_failure slack",
    "channel": "service provider target_channel",
    "to": "recipient recipients chat chat_id channel_id address",
    "after": "threshold failures consecutive_failures",
    "text": "message body template",
    "delete_after_run": "one_shot ttlsecondsafterfinished delete_on_completion once",
    "jitter": "splay random_delay randomizeddelaysec",
    "initial_delay": "delay backoff base_delay interval countdown",
    "multiplier": "factor backoff_factor exponent",
    "max_delay": "max_backoff cap backoff_max retry_backoff_max",
    "max_attempts": "max_retries retries attempts limit",
}
_SYNONYMS = {word for words in _FIELDS.values() for word in words.split()}
_VALUES = {
    "forbid": "skip",
    "disallow": "skip",
    "ignore": "skip",
    "cancel": "replace",
    "cancel_other": "replace",
    "terminate_other": "replace",
    "buffer": "queue",
    "buffer_one": "queue",
    "buffer_all": "queue",
    "wait": "queue",
    "parallel": "allow",
    "allow_all": "allow",
    "last": "latest",
    "one": "latest",
    "true": "all",
    "false": "none",
    "never": "none",
    "off": "none",
    "skip_missed": "none",
    "urgent": "critical",
    "high": "critical",
    "low": "batch",
}


def unknown_field(name: object, known: Collection[str]) -> str:
    """The reason that refuses an unknown field, with the field that was probably meant."""
    written = str(name)
    if (field := _field_called(written.lower(), known)) is not None:
        return f"is called {field} here"
    near = nearest(written, [*known, *(word for word in sorted(_SYNONYMS) if _field_called(word, known))])
    if near is None:
        return NO_FIELD
    return f"{NO_FIELD}; did you mean {near if near in known else _field_called(near, known)}?"


def _field_called(word: str, known: Collection[str]) -> str | None:
    """The known field that other schedulers call by this word."""
    return next((field for field, words in _FIELDS.items() if field in known and word in words.split()), None)


def unknown_choice(value: str, known: Collection[str]) -> str:
    """The reason that refuses a value which is none of the known ones, with the one that was probably meant."""
    synonym = _VALUES.get(value.lower())
    meant = synonym if synonym in known else nearest(value, known)
    return f"must be one of {', '.join(known)}" + (f"; did you mean {meant}?" if meant else "")
