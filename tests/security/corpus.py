"""The hostile corpus: one table with a row for each attack, what must hold, and how that is shown.

A row is executed here against a running Gnomon (`execute`), or names the tests that show it elsewhere (`tests`), or
belongs to a feature that does not exist yet (`later`). `make corpus` prints the table.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from security import api_attacks as api
from security import bus_attacks as bus
from security import command_attacks as commands
from security import token_attacks as tokens
from support.hostile_target import HostileTarget, Shape

EVERY_SHAPE = tuple(Shape)
_JOBS_FILE = "tests/adapters/test_jobs_file.py::"
_FILE_REFUSALS = _JOBS_FILE + "test_a_file_is_refused_by_line_and_field"
_JWT = "tests/adapters/auth/test_jwt.py::"
_HOSTILE_TOKEN = _JWT + "test_a_hostile_token_is_refused"
_CLAIMS = "tests/core/test_auth.py::test_claims_that_prove_nothing_are_refused"
_JOB = "tests/core/jobs/test_job.py::"
_SHELL = "tests/runners/test_shell.py::"
_COMMANDS = "tests/core/jobs/test_steps_commands.py::"
_REMOTE = "tests/services/remote/test_remote_execution.py::"
_MESSAGES = "tests/core/test_messages.py::"
_NATS = "tests/contracts/test_nats_messaging.py::"
_AUDIT = "tests/services/operations/test_audit.py::"
_HTTP = "tests/adapters/test_http_client.py::"
_PINGS = "tests/core/test_pings.py::"
_API = "tests/api/"
_ISOLATION = "tests/security/test_command_isolation.py::"
_OUTGOING = "tests/security/test_outgoing_requests.py::"
_IDENTITY = "tests/security/test_worker_identity.py::"
_ENROLLED = "tests/security/test_enrolled_workers.py::"
_PARSING = "tests/security/test_http_parsing.py::"
_BACKUPS = "tests/security/test_hostile_backups.py::"
_CONNECTIONS = "tests/security/test_connections.py::"
_METRICS = "tests/services/observability/test_metrics_recorder.py::"
_ADDRESSES = "tests/adapters/sql/test_postgres_addresses.py::"
_DOCTOR = "tests/cli/test_doctor_command.py::"
_GUARDED = "tests/runners/test_guarded_commands.py::"
_GATE = "tests/services/execution/test_command_gate.py::"
_CALLS = "tests/runners/test_http_calls.py::"
_CHANNELS = "tests/adapters/channels/test_channels.py::"
_TEXT = "tests/core/announcements/test_text.py::"
_CRON = "tests/core/cron/test_syntax.py::"

_EXPORTS = "tables to export"


@dataclass(frozen=True, kw_only=True)
class AttackRow:
    """One attack of the corpus."""

    id: str
    title: str
    holds: str
    #: Runs the attack against a target and asserts what must hold, in these shapes.
    execute: Callable[[HostileTarget], None] | None = None
    shapes: tuple[Shape, ...] = ()
    #: The tests that show the rest of it.
    tests: tuple[str, ...] = ()
    #: The feature that it, or the rest of it, waits for.
    later: str = ""
    #: Whether every run of the tests includes it on a fleet, too.
    short: bool = False


def _live(  # the columns of a row
    number: str,
    title: str,
    holds: str,
    execute: Callable[[HostileTarget], None],
    *tests: str,
    shapes: tuple[Shape, ...] = EVERY_SHAPE,
    later: str = "",
    short: bool = False,
) -> AttackRow:
    return AttackRow(
        id=number, title=title, holds=holds, execute=execute, shapes=shapes, tests=tests, later=later, short=short
    )


def _shown(number: str, title: str, holds: str, *tests: str, later: str = "") -> AttackRow:
    return AttackRow(id=number, title=title, holds=holds, tests=tests, later=later)


def _later(number: str, title: str, holds: str, feature: str) -> AttackRow:
    return AttackRow(id=number, title=title, holds=holds, later=feature)


def _job(**fields: str) -> bytes:
    """The text of a job, with the JSON texts of some fields as they are."""
    usual = {"name": '"victim"', "function": '"f"', **fields}
    return ("{" + ", ".join(f'"{name}": {text}' for name, text in usual.items()) + "}").encode()


NAMES = (
    "", " ", ".", "..", "a/b", "a%2Fb", "../x", "a" * 256, "a\nb", "-rf", "a\u202eb", "\uff41", "caf\u00e9",
    "cafe\u0301", "Upper", 7, True, None,
)  # fmt: skip
ZONES_OF_THE_HOST = ("localtime", "posixrules", "Factory", "right/UTC")
ZONES_OUTSIDE = ("../../etc/passwd", "/etc/passwd", "", "A" * 5000, "UTC\u0000", "utc")
BAD_CRON = (
    "*/0 * * * *", "60 * * * *", "1,,2 * * * *", "* * * *", "* * * * * * * *", "1," * 5000 + "1 * * * *",
)  # fmt: skip
FOREIGN_FIELDS = (
    {"tenant": "other"}, {"created_by": "root"}, {"fence": 1}, {"approval_granted": True}, {"is_compensation": True},
    {"next_run_at": 0},
)  # fmt: skip
RETRIES = (
    {"max_attempts": 2**31}, {"multiplier": 1e308}, {"jitter": 1.5}, {"initial_delay": -5}, {"initial_delay": "1e9d"},
)  # fmt: skip
SQL = ("status=completed' OR '1'='1", "sort=name;DROP TABLE run", "job=a'--", "status=completed%00")

API_AND_DEFINITIONS = (
    _live("A01", "an input of 65,537 bytes", "refused; 65,536 bytes are accepted", api.input_size, short=True),
    _live(
        "A02",
        "a chunked body without end",
        "cut at the limit, memory bounded",
        api.endless_body,
        _API + "test_hostile_requests.py::test_a_body_without_end_is_cut_off",
    ),
    _live("A03", "a compressed body that inflates without measure", "refused", api.compressed_body),
    _live(
        "A04",
        "100,000 opening brackets",
        "refused, no failure of the parser",
        api.refuses_bodies(b"[" * 100_000, b'{"a":' * 50_000),
    ),
    _live("A05", "a number of 5,000 digits", "refused", api.refuses_bodies(_job(timeout="9" * 5000))),
    _live(
        "A06",
        "NaN, Infinity, 1e999",
        "refused",
        api.refuses_bodies(*(_job(timeout=value) for value in ("NaN", "Infinity", "-Infinity", "1e999"))),
    ),
    _live(
        "A07",
        "a key twice",
        "refused",
        api.refuses_bodies(_job()[:-1] + b', "name": "b"}', _job(input='{"x":1,"x":2}')),
    ),
    _live(
        "A08",
        "half a surrogate pair",
        "refused",
        api.refuses_bodies(_job(description='"\\ud800"'), _job(input='{"x": "\\ud800"}')),
        short=True,
    ),
    _live(
        "A09",
        "U+0000 in a text",
        "refused in every store",
        api.refuses_bodies(_job(input='{"x": "a\\u0000b"}'), _job(input='{"a\\u0000b": 1}')),
        short=True,
    ),
    _live(
        "A10", "names that are empty, paths, options or not ASCII", "refused", api.refuses_values("name", NAMES[:-1])
    ),
    _live("A11", "names with wildcards of subjects", "refused", api.refuses_values("name", (">", "*", "a.b.>", "a.*"))),
    _live(
        "A12",
        "zones that depend on the host",
        "refused",
        api.refuses_values("timezone", ZONES_OF_THE_HOST, schedule="@daily"),
    ),
    _live(
        "A13",
        "zones that are paths or no names",
        "refused, no file outside of the zone tree opened",
        api.refuses_values("timezone", ZONES_OUTSIDE, schedule="@daily"),
        "tests/core/test_timezones.py::test_an_unknown_zone_is_refused",
    ),
    _live(
        "A14",
        "cron out of range, with empty parts, too many fields, 10,000 characters",
        "refused at once",
        api.refuses_values("schedule", BAD_CRON),
        _CRON + "test_hostile_text_is_refused_in_no_time",
    ),
    _live(
        "A15",
        "cron with digits of other scripts",
        "refused",
        api.refuses_values("schedule", ("\u0663 * * * *", "\uff13 * * * *")),
    ),
    _live(
        "A16",
        "cron that never fires",
        "refused at once",
        api.refuses_values("schedule", ("0 0 30 2 *", "0 0 31 4,6 *")),
    ),
    _live(
        "A17",
        "intervals of nothing, below the shortest, beyond the range, of another type",
        "refused",
        api.refuses_values("every", (0, -1, "1ms", 2**63, True, "1e3")),
    ),
    _live("A18", "retries that overflow", "refused", api.refuses_values("retry", RETRIES)),
    _live("A19", "instants at the ends of the calendar, in gaps, without zone", "a defined result each", api.instants),
    _live(
        "A20",
        "depends_on as a text",
        "refused, never one dependency per letter",
        api.refuses_fields({"function": None, "dag": [{"step": "a", "function": "f", "depends_on": "extract"}]}),
    ),
    _live(
        "A21",
        "graphs with circles, unknown or doubled steps, 10,000 steps, 2^40 paths",
        "refused, or linear time",
        api.graphs,
        _JOB + "test_a_large_graph_is_read_in_no_time",
    ),
    _live("A22", "fields that are not for users", "refused as unknown", api.refuses_fields(*FOREIGN_FIELDS)),
    _live(
        "A23",
        "labels that other engines interpret",
        "text without effect; unknown fields are refused",
        api.opaque_labels,
        "tests/services/remote/test_remote_routing.py::test_a_worker_that_is_preferred_gets_it",
    ),
    _live(
        "A24",
        "limits out of range, cursors altered, foreign or random",
        "refused",
        api.cursors,
        _API + "test_hostile_requests.py::test_a_cursor_is_good_for_the_question_it_was_given_out_for",
        short=True,
    ),
    _live(
        "A25",
        "SQL in a query",
        "refused; parameters are bound",
        api.refuses_queries("/v1/executions", *SQL),
        short=True,
    ),
    _live(
        "A26",
        "addresses that two parsers read differently",
        "400",
        api.ambiguous_addresses,
        _API + "test_hostile_requests.py::test_an_address_that_two_could_read_differently_is_refused",
    ),
    _live("A27", "headers that proxies add", "ignored", api.headers_of_proxies),
    _live(
        "A28",
        "two lengths, length and chunks, folded headers",
        "refused, and the connection closed",
        api.ambiguous_lengths,
    ),
    _live(
        "A29",
        "callers who send one byte and wait",
        "others are served",
        api.slow_callers,
        _CONNECTIONS + "test_commands_run_on_time_while_hundreds_of_connections_are_held",
        _CONNECTIONS + "test_the_connection_that_waits_longest_makes_way_for_a_new_one",
    ),
    _live("A30", "forms, multipart, thousands of ranges", "415, or ignored", api.other_formats),
    _live(
        "A31",
        "idempotency keys: long, with another body, of another tenant, many at once",
        "refused, a conflict, separate, one effect",
        api.idempotency_keys,
        _API + "test_replicas.py::test_a_key_is_one_execution_whichever_server_is_asked",
        short=True,
    ),
    _live("A32", "changes with the same If-Match at once", "one is made", api.concurrent_changes, short=True),
    _shown(
        "A33",
        "more requests than a caller may send",
        "429 for this caller; others have their share of the time",
        _API + "test_connection_limits.py::test_a_caller_over_its_rate_is_told_when_to_retry",
        "tests/security/test_request_shares.py::test_a_caller_with_many_requests_delays_another_by_one_of_them",
    ),
    _live(
        "A34",
        "callers beyond their role or tenant",
        "403 or 404 before the object is read",
        api.roles,
        _API + "test_roles.py::test_every_route_lets_in_those_who_may_and_nobody_else",
        _API + "test_tenant_isolation.py::test_objects_of_another_tenant_are_neither_seen_nor_changed",
        short=True,
    ),
    _live("A35", "a foreign and a missing object", "the same words", api.foreign_and_missing),
    _live(
        "A36",
        "health and metrics without a token",
        "no names, no address of the database",
        api.public_answers,
        "tests/acceptance/test_metrics.py::test_nothing_that_is_scraped_is_a_secret_or_names_a_single_run",
    ),
)

YAML_FILES = (
    _shown(
        "Y01",
        "nine levels of aliases",
        "refused by a budget of nodes",
        _JOBS_FILE + "test_exponential_aliases_are_refused_at_once",
    ),
    _shown(
        "Y02",
        "eighteen levels of merge keys",
        "refused at once",
        _JOBS_FILE + "test_exponential_aliases_are_refused_at_once",
    ),
    _shown("Y03", "a value that contains itself", "refused", _FILE_REFUSALS),
    _shown("Y04", "tags that construct Python objects", "refused, nothing executed", _FILE_REFUSALS),
    _shown(
        "Y05",
        "1:30, 22:22, 010",
        "refused unless quoted",
        _JOBS_FILE + "test_ambiguous_scalars_must_be_quoted",
    ),
    _shown("Y06", "a job named on, yes, null or 1e3", "refused", _FILE_REFUSALS),
    _shown("Y07", "a key twice", "refused", _FILE_REFUSALS),
    _shown("Y08", "an unknown key", "refused, never ignored", _FILE_REFUSALS),
    _shown(
        "Y09",
        "a date without a time",
        "refused unless quoted",
        _JOBS_FILE + "test_ambiguous_scalars_must_be_quoted",
    ),
    _shown("Y10", "a second document", "refused", _FILE_REFUSALS),
    _shown(
        "Y11",
        "other encodings, NUL, tabs, CRLF",
        "a defined result, no file applied by half",
        _JOBS_FILE + "test_a_file_that_is_no_text_is_refused",
        _JOBS_FILE + "test_a_byte_order_mark_and_foreign_line_ends_are_accepted",
    ),
    _shown(
        "Y12",
        "a file of 50 MB",
        "refused by its size; 5 MB without anchors are read",
        _JOBS_FILE + "test_a_file_that_is_no_text_is_refused",
        _JOBS_FILE + "test_a_file_of_five_megabytes_is_read",
    ),
    _shown("Y13", "binary, set and timestamp tags", "refused", _FILE_REFUSALS),
    _shown(
        "Y14",
        "variables and commands in an input",
        "only secrets of the definition expand, on the worker",
        "tests/security/test_secrets_in_data.py::test_data_reaches_a_command_as_it_is_and_the_definition_gets_its_secret",
        "tests/runners/test_secrets.py::test_only_allowed_names_are_looked_for",
        _JOB + "test_a_reference_to_a_secret_stays_a_reference",
    ),
    _live("Y15", "template syntax in an input", "plain text", api.template_text),
    _shown(
        "Y16",
        "a link to a secret file, a FIFO, a device, a folder",
        "refused: no regular file",
        _JOBS_FILE + "test_only_regular_files_are_read",
    ),
    _shown(
        "Y17",
        "one invalid job among a hundred",
        "nothing applied; file, line and key are named",
        _JOBS_FILE + "test_one_bad_job_among_many_refuses_them_all",
        "tests/acceptance/test_up.py::test_nothing_is_registered_if_any_file_is_wrong",
    ),
    _shown(
        "Y18",
        "a file without a job that exists",
        "the job stays unless pruning was asked for",
        "tests/services/operations/test_job_plan.py::test_undeclared_jobs_stay_unless_they_are_pruned",
    ),
)


def _command(number: str, title: str, *texts: str, tests: tuple[str, ...] = ()) -> AttackRow:
    """A row with commands that are refused."""
    return _live(number, title, "refused", commands.refuses_commands(*texts), *tests)


COMMANDS = (
    _command("P01", "echo $(id)", "echo $(id)", 'echo "$(id)"', "echo $((1))"),
    _command("P02", "echo `id`", "echo `id`", 'echo "`id`"'),
    _command("P03", "ls, line feed, id", "ls\nid", "ls\r\nid"),
    _command("P04", "ls;id", "ls;id", "ls ; id"),
    _command("P05", "ls&id", "ls&id", "ls &"),
    _command("P06", "ls||id", "ls||id", "ls && id"),
    _command("P07", "ls | id", "ls | id", "ls |& id"),
    _command("P08", "cat</etc/passwd", "cat</etc/passwd", "cat 0< /etc/passwd", "ls >/etc/x", "ls >&2"),
    _command("P09", "cat${IFS}/etc/passwd", "cat${IFS}/etc/passwd", "cat$IFS/etc/passwd"),
    _command("P10", "{cat,/etc/passwd}", "{cat,/etc/passwd}", "cat {/etc/passwd,}"),
    _command("P11", "cat /e?c/p*d", "cat /e?c/p*d", "cat /etc/pass[w]d", "/bin/c?t x"),
    _command(
        "P12",
        "quotes and backslashes inside of a word",
        "cat /etc/pass''wd",
        "c\\at /etc/passwd",
        "cat /et\\c/passwd",
        "i'd'",
    ),
    _command("P13", "$'\\x63at' x", "$'\\x63at' x", '$"id"'),
    _command(
        "P14",
        "wrappers: env, nohup, timeout, xargs, busybox",
        "env bash -c id",
        "nohup id",
        "timeout 5 sh -c id",
        "xargs sh",
        "busybox sh",
        "setsid id",
        "sudo id",
        "ls | xargs sh -c id",
        "sh -c id",
    ),
    _command(
        "P15",
        "find -exec, -ok, -delete, -fprintf",
        "find . -exec id \\;",
        "find . -ok id \\;",
        "find . -delete",
        "find . -fprintf x y",
        "find . -execdir id \\;",
        "find . -exec sh -c id '{}' +",
    ),
    _command(
        "P16",
        "git -c, aliases, ext::, --upload-pack",
        "git -c core.pager=id log",
        "git -c alias.x='!id' x",
        "git clone ext::'sh -c id'",
        "git fetch --upload-pack=id",
        "git --exec-path=. log",
        "git config core.pager id",
        "git grep -O id x",
        "git submodule foreach id",
        "git rebase -x id",
    ),
    _command(
        "P17",
        "tar --checkpoint-action, --to-command",
        "tar --checkpoint=1 --checkpoint-action=exec=id -cf x .",
        "tar --to-command=id -xf x",
        "tar -I id -cf x .",
    ),
    _command(
        "P18",
        "python3 -c, -m, -, PYTHONPATH",
        "python3 -c 'import os'",
        "python3 -m http.server",
        "python3 -",
        "PYTHONPATH=. python3 x.py",
    ),
    _command(
        "P19",
        "variables that load code",
        "LD_PRELOAD=./x.so ls",
        "BASH_ENV=./x ls",
        "PATH=.:$PATH ls",
        "GIT_SSH_COMMAND=id git fetch",
        "IFS=x ls",
        tests=(
            _SHELL + "test_it_sees_a_few_variables_of_its_worker_and_those_of_its_step",
            _SHELL + "test_the_input_of_a_run_does_not_set_environment_variables",
            _ISOLATION + "test_it_finds_no_programs_in_its_workspace",
        ),
    ),
    _command(
        "P20",
        "paths outside of the workspace, also through links",
        "cat ../../etc/passwd",
        "cat a/../../etc/passwd",
        "cat /proc/self/cwd/../../../etc/passwd",
        "cat ~nobody/x",
        "cat ~/x",
        "ls /",
        "cat /proc/self/environ",
        tests=(
            _SHELL + "test_and_nowhere_else",
            _COMMANDS + "test_a_step_that_could_never_run_is_refused",
            _GUARDED + "test_its_files_are_confined",
        ),
    ),
    _command(
        "P21",
        "paths inside of options",
        "grep --file=/etc/passwd x .",
        "grep -f/etc/passwd x",
        "cat --show-all=/etc/passwd",
        "grep --fi=/etc/passwd x",
        "wc --files0-from=/etc/passwd",
        "find . -newer /etc/passwd",
        "grep -rf /etc/passwd .",
    ),
    _command(
        "P22",
        "here-documents, source, eval, exec",
        "cat <<E\n$(id)\nE",
        "cat <<< id",
        ". ./x",
        "source x",
        "eval id",
        "exec id",
        "command id",
        "trap id EXIT",
        "if ls; then id; fi",
        "(id)",
        "f() { id; }",
        "! id",
        "while id; do id; done",
    ),
    _command(
        "P23",
        "white space that only some programs take for such, CR, NUL",
        "ls\u00a0id",
        "ls\u2028id",
        "ls\rid",
        "ls\x0bid",
        "ls\x1bid",
        "ls\u202eid",
        "ls\ufeff",
        tests=(_COMMANDS + "test_a_step_that_could_never_run_is_refused",),
    ),
    _command(
        "P24",
        "a command of 20,000 characters, hundreds of variables",
        "echo " + "x" * 20_000,
        "echo " + "x " * 8000,
        tests=(_COMMANDS + "test_a_step_that_could_never_run_is_refused",),
    ),
    _shown(
        "P25",
        "a fork bomb, and other exhaustion",
        "limits of every process of a command",
        _ISOLATION + "test_a_fork_bomb_is_limited",
        _ISOLATION + "test_each_of_its_processes_has_limits",
        _ISOLATION + "test_another_user_cannot_escape_by_killing_guardians",
    ),
    _shown(
        "P26",
        "a policy that changes, a row that is edited",
        "checked again when the command is admitted, and when it starts",
        _GATE + "test_a_command_of_unknown_origin_is_under_the_policy",
        _GATE + "test_a_changed_command_has_no_approval",
        _GUARDED + "test_a_refused_command_is_denied_before_a_process_exists",
        _GUARDED + "test_the_variables_of_a_step_are_checked_too",
    ),
    _shown(
        "P27",
        "output that imitates a refusal",
        "an ordinary failure",
        _SHELL + "test_a_status_that_is_not_0_is_a_failure_that_says_why",
    ),
    _shown(
        "P28",
        "a command that reads its worker and the files of the scheduler",
        "denied",
        "tests/security/test_commands_of_a_node.py::test_a_command_reads_neither_the_variables_of_its_worker_nor_its_files",
        "tests/security/test_commands_of_a_node.py::test_a_workspace_that_holds_the_database_is_refused_at_the_start",
        _ISOLATION + "test_it_has_no_descriptor_of_its_worker",
    ),
    _shown(
        "P29",
        "a working folder that is deleted or replaced",
        "the attempt fails, nothing escapes",
        _SHELL + "test_a_workspace_that_is_not_there_is_named",
        _SHELL + "test_and_nowhere_else",
    ),
    _live(
        "P30",
        "functions named after modules and builtins",
        "only registered names are called",
        api.code_by_name,
        "tests/acceptance/test_up.py::test_a_function_that_nobody_has_registered_is_named",
    ),
)

WEBHOOKS = (
    _live(
        "W01",
        "loopback, own port",
        "refused, nobody connects",
        commands.calls_nothing_inside("127.0.0.1:{port}", "localhost:{port}", "0.0.0.0:{port}", "[::1]:{port}"),
        _OUTGOING + "test_a_job_does_not_reach_this_machine",
        short=True,
    ),
    _live(
        "W02",
        "loopback in other spellings",
        "refused, nobody connects",
        commands.calls_nothing_inside("2130706433:{port}", "0x7f.1:{port}", "0177.0.0.1:{port}", "127.1:{port}"),
        _OUTGOING + "test_every_spelling_of_an_internal_address_is_known",
    ),
    _live(
        "W03",
        "metadata services",
        "refused",
        commands.calls_nothing_inside(
            "[::ffff:169.254.169.254]", "169.254.169.254", "[fd00:ec2::254]", "100.100.100.200"
        ),
        _OUTGOING + "test_every_spelling_of_an_internal_address_is_known",
    ),
    _live(
        "W04",
        "addresses that translate or tunnel to internal ones",
        "refused, nobody connects",
        commands.calls_nothing_inside(
            "[64:ff9b::a9fe:a9fe]",
            "[2002:7f00:1::]:{port}",
            "[::7f00:1]:{port}",
            "[fec0::1]",
            "224.0.0.1",
            "192.0.0.8",
            "100.64.0.1",
            "[::ffff:127.0.0.1]:{port}",
        ),
        _OUTGOING + "test_every_spelling_of_an_internal_address_is_known",
    ),
    _shown(
        "W05",
        "a name with a public and an internal address",
        "refused",
        _OUTGOING + "test_a_name_with_one_internal_address_is_refused",
    ),
    _shown(
        "W06",
        "a name that resolves differently at connect",
        "only the checked address is connected",
        _OUTGOING + "test_a_name_is_resolved_once_so_that_a_second_answer_cannot_change_the_address",
        _OUTGOING + "test_tls_is_asked_for_the_name_although_the_connection_goes_to_the_address",
    ),
    _shown(
        "W07",
        "redirects",
        "not followed elsewhere, and checked like every request",
        _HTTP + "test_redirects_to_other_hosts_are_not_followed",
        _CALLS + "test_a_redirect_to_another_host_is_not_followed",
        _CALLS + "test_a_redirect_on_the_host_cannot_rebind_its_name_to_an_address_inside",
    ),
    _live(
        "W08",
        "user names, blanks, line feeds in a URL",
        "refused",
        commands.refuses_urls(
            "http://good.example@127.0.0.1/",
            "http://good.example#@evil.example/",
            "http://a\\@evil.example/",
            "http://good.example/a\tb",
            "http://good.example/a\nb",
            "http://:80/",
            "http://good.example:0/",
        ),
        _OUTGOING + "test_other_urls_are_refused_before_anything_is_resolved",
        _PINGS + "test_an_invalid_ping_is_refused_by_its_field",
    ),
    _live(
        "W09",
        "file:, ftp: and other schemes",
        "refused",
        commands.refuses_urls(
            "file:///etc/passwd", "gopher://a/", "ftp://a/", "unix:/run/x", "jar:http://a/", "data:,a", "//a/"
        ),
        _OUTGOING + "test_other_urls_are_refused_before_anything_is_resolved",
        _PINGS + "test_an_invalid_ping_is_refused_by_its_field",
    ),
    _live(
        "W10",
        "ports of other services",
        "refused unless listed",
        commands.calls_nothing_inside(*(f"8.8.8.8:{port}" for port in (22, 25, 5432, 6379, 4222))),
        _OUTGOING + "test_ports_of_other_protocols_need_a_listed_host",
    ),
    _live(
        "W11",
        "line feeds in a URL and in headers; headers of the connection",
        "refused",
        commands.refuses_headers,
        _PINGS + "test_an_invalid_ping_is_refused_by_its_field",
    ),
    _shown(
        "W12",
        "endless and slow answers",
        "bounded in size and time",
        _OUTGOING + "test_a_large_answer_is_cut_off",
        _HTTP + "test_a_server_that_hangs_is_given_up",
        _HTTP + "test_a_server_that_sends_without_end_and_says_nothing_is_given_up",
    ),
    _shown(
        "W13",
        "an invalid certificate",
        "the call fails",
        _OUTGOING + "test_a_certificate_of_an_unknown_authority_is_refused",
    ),
    _shown(
        "W14",
        "an answer with secrets of another system",
        "bounded, redacted, readable by role",
        _CALLS + "test_a_huge_answer_is_cut",
        _CALLS + "test_secrets_are_sent_and_never_stored",
        _CALLS + "test_a_secret_that_the_cut_splits_leaves_no_beginning",
        _API + "test_tenant_isolation.py::test_objects_of_another_tenant_are_neither_seen_nor_changed",
    ),
    _shown(
        "W15",
        "signatures of deliveries",
        "verifiable, over the time and the body",
        _CHANNELS + "test_a_webhook_is_signed_as_standard_webhooks_defines_it",
        _CHANNELS + "test_the_signature_is_that_of_the_example_in_the_standard",
        "tests/docs/test_examples.py",
    ),
    _shown(
        "W16",
        "targets, tokens and mentions in messages",
        "checked, hidden, cut, mentions off",
        "tests/core/jobs/test_announce_fields.py::test_a_channel_that_the_settings_lack_or_that_needs_more_is_refused",
        _CHANNELS + "test_no_token_is_in_an_error_even_if_the_service_repeats_it",
        _TEXT + "test_nothing_calls_everybody",
        "tests/core/announcements/test_split.py::test_every_part_is_within_the_limit_of_its_service_and_nothing_is_lost",
    ),
    _shown(
        "W17",
        "proxy variables in the environment",
        "ignored",
        _OUTGOING + "test_a_proxy_of_the_environment_is_not_used",
    ),
)

TOKENS = (
    _live("J01", "no algorithm", "refused", api.unsigned_tokens, _HOSTILE_TOKEN, short=True),
    _live("J02", "the public key as a shared secret", "refused", tokens.shared_secrets, _HOSTILE_TOKEN),
    _live(
        "J03",
        "keys in the header",
        "ignored, no request made",
        tokens.embedded_keys,
        _HOSTILE_TOKEN,
        _JWT + "test_no_address_in_a_token_is_ever_asked",
    ),
    _live("J04", "key ids that are paths, SQL, lists, long", "refused", tokens.key_ids, _HOSTILE_TOKEN),
    _live("J05", "critical extensions", "refused", tokens.critical_extensions, _HOSTILE_TOKEN),
    _shown(
        "J06",
        "other audiences",
        "only exact members",
        _HOSTILE_TOKEN,
        "tests/core/test_auth.py::test_an_audience_counts_if_we_are_in_it",
    ),
    _live("J07", "almost the issuer", "refused; keys belong to an issuer", tokens.other_issuers, _HOSTILE_TOKEN),
    _live(
        "J08",
        "lifetimes that are missing, over, in the future, no numbers",
        "refused",
        tokens.lifetimes,
        _HOSTILE_TOKEN,
        _CLAIMS,
    ),
    _live("J09", "a claim twice", "refused", tokens.claims_twice, _HOSTILE_TOKEN),
    _live(
        "J10",
        "roles of another type, case or name",
        "only known roles count",
        tokens.unknown_roles,
        "tests/core/test_auth.py::test_only_known_roles_count_to_the_letter",
    ),
    _live("J11", "identity and refresh tokens, other tenants", "refused", tokens.other_tokens, _CLAIMS),
    _live("J12", "encrypted, nested, unencoded, megabytes", "refused", tokens.other_forms, _HOSTILE_TOKEN),
    _live("J13", "signatures of zeros, padded, in another alphabet", "refused", tokens.signatures, _HOSTILE_TOKEN),
    _shown(
        "J14",
        "weak, shared, doubled keys",
        "not used, and reported",
        _JWT + "test_an_untrusted_key_is_ignored_and_reported",
        _JWT + "test_a_name_that_several_keys_have_is_the_name_of_none",
    ),
    _shown("J15", "thousands of unknown key ids", "one fetch", _JWT + "test_names_that_nobody_knows_cost_one_fetch"),
    _shown(
        "J16",
        "rotation and outages of the issuer",
        "new keys count at once, old ones end",
        _JWT + "test_a_key_that_is_used_at_once_after_it_was_published_is_found",
        _JWT + "test_a_key_that_was_taken_back_no_longer_counts_once_keys_are_old",
        _JWT + "test_keys_of_an_issuer_that_stays_away_end_to_count",
    ),
    _shown(
        "J17",
        "keys of a gigabyte, redirects, HTML, slow",
        "bounded, refused",
        _JWT + "test_an_issuer_that_never_answered_well_lets_nobody_in",
        _JWT + "test_redirects_of_an_issuer_are_not_followed",
        _JWT + "test_an_issuer_that_hangs_is_given_up",
    ),
    _live("J18", "tokens in the address, twice, in other schemes", "refused, in no log", api.strangers, short=True),
    _shown(
        "J19",
        "verification switched off",
        "needs two settings",
        "tests/acceptance/test_server.py::test_letting_everybody_in_has_to_be_meant",
        _JWT + "test_settings_that_would_let_anybody_in_are_refused",
    ),
    _live(
        "J20",
        "tokens replayed after their end, and to another node",
        "refused",
        tokens.replayed,
        "tests/security/test_worker_identity.py::test_a_report_that_names_another_worker_than_its_subject_is_refused",
        short=True,
    ),
)

DASHBOARD = (
    _live("D01", "markup in names, errors and output", "inert", api.inert_texts),
    _live(
        "D02",
        "a change requested by a page of another site",
        "refused",
        api.changes_by_pages,
        _API + "test_roles.py::test_a_page_of_another_site_changes_nothing_where_no_token_is_needed",
    ),
    _shown(
        "D03",
        "a stream that outlives its token",
        "ends with the token",
        "tests/security/test_stream_shares.py::test_a_stream_ends_when_its_token_expires",
        "tests/security/test_stream_shares.py::test_a_stream_ends_when_its_token_is_refused",
        "tests/ui/test_live_parts.py::test_the_stream_ends_with_the_session",
    ),
    _live("D04", "framing", "refused", api.frames),
    _live(
        "D05",
        "redirects to other sites",
        "only local paths",
        api.redirects,
        "tests/ui/test_sessions.py::test_signing_in_leads_to_pages_of_this_server_only",
    ),
    _later("D06", "formulas in exported tables", "quoted", _EXPORTS),
    _live("D07", "terminal sequences and endless lines in output", "escaped, cut", api.inert_texts),
    _live("D08", "requests of other origins", "no origin is allowed", api.other_origins),
    _live(
        "D09",
        "another Host header",
        "refused",
        api.foreign_hosts,
        _PARSING + "test_a_request_names_one_host_that_the_server_answers_for",
        _PARSING + "test_every_path_refuses_a_name_that_was_rebound",
        short=True,
    ),
    _live(
        "D10",
        "answers in a cache",
        "not stored",
        api.security_headers,
        _PARSING + "test_responses_with_data_have_the_security_headers_too",
    ),
    _live("D11", "cookies", "the API reads none; a session is HttpOnly, and none is fixed", api.cookies),
    _live(
        "D12",
        "100,000 executions, patterns of users",
        "paged by the server, no patterns",
        api.endless_lists,
    ),
)

_ON_NATS = (Shape.NATS,)
BUS = (
    _shown(
        "B01",
        "a report about the task of another, or about an unknown one",
        "refused, and kept for operators",
        _IDENTITY + "test_the_outcome_of_a_worker_that_does_not_hold_the_task_is_refused",
        _REMOTE + "test_a_report_of_a_worker_that_was_given_up_is_too_late",
    ),
    _shown(
        "B02",
        "a report with an old fence",
        "no effect",
        _REMOTE + "test_a_report_of_a_worker_that_was_given_up_is_too_late",
        _MESSAGES + "test_a_worker_cannot_say_what_follows_from_an_outcome",
    ),
    _shown(
        "B03",
        "reports that contradict each other",
        "the first valid one counts",
        _REMOTE + "test_a_report_that_was_written_down_is_not_written_down_again_by_another_server",
        "tests/services/remote/test_remote_interleaving.py::test_a_task_that_one_worker_started_is_not_given_back_by_another",
    ),
    _shown(
        "B04",
        "a subject and a body that differ",
        "refused",
        _IDENTITY + "test_a_report_that_names_another_worker_than_its_subject_is_refused",
        _IDENTITY + "test_a_request_that_names_another_worker_than_its_subject_gets_no_answer",
    ),
    _live(
        "B05",
        "unreadable messages",
        "kept for operators; the consumer goes on",
        bus.unreadable_reports,
        _REMOTE + "test_a_report_that_nobody_can_read_is_put_away_and_the_next_is_heard",
        _NATS + "test_an_oversized_message_blocks_no_other",
        shapes=_ON_NATS,
        short=True,
    ),
    _live("B06", "serialised objects", "never deserialised", bus.serialised_objects, shapes=_ON_NATS),
    _shown(
        "B07",
        "a worker that publishes or subscribes elsewhere",
        "denied by the server",
        _ENROLLED + "test_an_enrolled_worker_publishes_on_its_own_subjects_only",
        _ENROLLED + "test_an_enrolled_worker_hears_its_own_subjects_only",
        _NATS + "test_a_worker_can_pull_acknowledge_and_report_and_nothing_else",
        _NATS + "test_nobody_listens_to_what_is_not_theirs",
    ),
    _shown(
        "B08",
        "a reply to a foreign subject",
        "refused",
        _ENROLLED + "test_an_enrolled_worker_cannot_make_nats_or_a_server_publish_for_it",
        _NATS + "test_an_answer_goes_to_an_inbox_and_nowhere_else",
    ),
    _shown(
        "B09",
        "a message id of another worker",
        "ids belong to their sender",
        _IDENTITY + "test_forged_message_ids_do_not_make_servers_or_streams_deaf_to_a_worker",
    ),
    _live(
        "B10",
        "messages dated far ahead or in 1970",
        "the date decides nothing",
        bus.reports_out_of_time,
        shapes=_ON_NATS,
    ),
    _shown(
        "B11",
        "the messages of yesterday again",
        "no start, no change",
        "tests/chaos/test_faults.py::test_a_fault_costs_time_and_nothing_else",
        _REMOTE + "test_a_report_that_was_written_down_is_not_written_down_again_by_another_server",
    ),
    _live(
        "B12",
        "tasks that no worker can read",
        "put away; workers go on",
        bus.unreadable_tasks,
        _REMOTE + "test_a_task_that_a_worker_cannot_read_is_kept_for_people",
        shapes=_ON_NATS,
    ),
    _live("B13", "inputs with special keys, or 100,000 of them", "opaque, bounded", api.opaque_input),
    _shown(
        "B14",
        "heartbeats with impossible numbers",
        "clamped or refused",
        _REMOTE + "test_nobody_has_more_slots_than_there_can_be",
    ),
)

SECRETS_AND_FILES = (
    _shown(
        "X01",
        "a secret in the output, split, encoded",
        "in no table, log or message",
        "tests/acceptance/test_up.py::test_a_secret_is_in_no_table_no_log_and_no_message",
        "tests/runners/test_secrets.py::test_no_form_of_a_secret_leaves_the_runner",
    ),
    _shown(
        "X02",
        "a connection that fails",
        "no credentials, no values",
        _DOCTOR + "test_a_server_that_does_not_answer_is_wrong_and_its_password_is_not_shown",
        _ADDRESSES + "test_an_address_that_cannot_be_meant_is_refused_and_not_repeated",
    ),
    _shown("X03", "a secret on a command line", "refused", _COMMANDS + "test_a_step_that_could_never_run_is_refused"),
    _shown(
        "X04",
        "an unexpected error",
        "in the log, never in the answer",
        _API + "test_hostile_requests.py::test_an_unexpected_error_is_logged_and_not_shown_to_the_caller",
        "tests/runners/test_secrets.py::test_a_line_of_the_program_that_holds_it_is_not_shown_with_it",
    ),
    _live("X05", "tenants in turn on pooled connections", "each sees its own", api.tenants_in_turn, short=True),
    _live(
        "X06",
        "row security of the database with a privileged role",
        "tenants are kept apart by the statements, whatever the role",
        api.privileged_database_role,
        "tests/api/test_tenant_isolation.py::",
        shapes=(Shape.POSTGRES, Shape.NATS),
        short=True,
    ),
    _live("X07", "the name of another tenant's job", "names are unique per tenant", api.tenants_in_turn),
    _shown(
        "X08",
        "limits shared by tenants",
        "shares and limits are per tenant",
        "tests/security/test_request_shares.py::test_callers_of_one_tenant_leave_half_of_the_memory_to_others",
        "tests/security/test_slot_shares.py::test_a_worker_gives_its_free_slots_to_tenants_in_turns",
        "tests/acceptance/test_workers_over_nats.py::test_a_tenant_has_no_more_on_its_way_over_nats_than_it_may",
    ),
    _shown(
        "X09",
        "audit entries changed, removed, swapped, cut off",
        "found",
        *(
            _AUDIT + name
            for name in (
                "test_a_changed_entry_is_found_and_named",
                "test_removed_entries_are_found",
                "test_entries_that_changed_places_are_found",
                "test_an_end_that_was_cut_off_is_found_by_whoever_knows_a_hash_of_it",
            )
        ),
        "tests/services/operations/test_audit_checkpoints.py::test_a_chain_that_was_made_anew_is_found",
        "tests/contracts/audit.py::test_sealers_at_once_make_one_chain",
        "tests/services/operations/test_audit_checkpoints.py::test_a_cut_end_is_found_and_stays_found",
        "tests/services/operations/test_audit_checkpoints.py::test_a_swapped_number_is_found",
    ),
    _live(
        "X10",
        "a refused action; a line feed in a name",
        "audited; no forged line in a log",
        api.refusals_are_audited,
        short=True,
    ),
    _shown(
        "X11",
        "a backup with triggers, views, other tables, links, or gibibytes of nothing",
        "refused; the target stays as it is",
        _BACKUPS + "test_a_file_that_is_no_plain_backup_is_refused",
        _BACKUPS + "test_bytes_after_the_pages_of_a_backup_are_left_out",
        _BACKUPS + "test_the_command_names_the_reason_without_a_traceback",
    ),
    _live(
        "X12",
        "files that others can read or write",
        "created for the owner alone; refused",
        api.private_files,
        "tests/security/test_guarded_files.py::test_a_file_that_others_may_write_to_is_refused",
        "tests/security/test_guarded_files.py::test_a_database_that_everybody_may_write_to_is_refused",
        "tests/adapters/auth/test_local_key.py::test_a_file_that_others_could_read_is_refused",
    ),
    _shown(
        "X13",
        "100,000 names in metrics",
        "capped",
        _METRICS + "test_a_hundred_thousand_jobs_leave_as_many_labels_as_there_is_room_for",
    ),
    _shown(
        "X14",
        "dependencies with known advisories",
        "below no known floor",
        "tests/test_dependencies.py::test_no_pin_is_below_the_floor_of_an_advisory",
    ),
)

FURTHER = (
    _live(
        "F01",
        "a JSON Schema that unfolds without measure",
        "refused at once",
        api.schema_bombs,
        "tests/core/jobs/test_schema_cost.py::test_a_schema_without_a_small_bound_is_refused",
        short=True,
    ),
    _live(
        "F02",
        "a cursor with an offset of the caller",
        "refused",
        api.forged_cursors,
        _API + "test_hostile_requests.py::test_a_cursor_that_the_store_has_not_sealed_is_refused",
        short=True,
    ),
    _live(
        "F03",
        "trailers without end, without a token",
        "refused, memory bounded",
        api.endless_trailers,
        _PARSING + "test_a_request_without_end_is_refused_before_it_fills_the_memory",
    ),
    _live(
        "F04",
        "a token in a trailer",
        "authenticates nobody",
        api.token_in_trailer,
        _PARSING + "test_a_token_in_a_trailer_authenticates_nobody",
    ),
    _live("F05", "a thousand fires of a job that fires once a year", "bounded; ticks go on", api.distant_fires),
    _live(
        "F06", "a run in the name of another user", "the audit trail names the caller", api.borrowed_names, short=True
    ),
    _live(
        "F07",
        "two Host headers, none, odd white space in a token",
        "refused",
        api.odd_headers,
        _PARSING + "test_a_token_has_one_form",
    ),
    _shown(
        "F08",
        "references to secrets put together from halves",
        "data is never read as a reference",
        "tests/security/test_secrets_in_data.py::test_data_reaches_a_command_as_it_is_and_the_definition_gets_its_secret",
        "tests/core/runs/test_secret_text.py::test_a_secret_is_where_the_template_has_it_and_nowhere_else",
    ),
    _live(
        "F09",
        "a token that was revoked",
        "refused by every server within seconds",
        api.revoked_tokens,
        "tests/services/test_token_revocation.py::test_a_revoked_token_is_refused_within_two_seconds",
        short=True,
    ),
    _live(
        "F10",
        "a look at the activity of another tenant",
        "nothing is shown",
        api.activity_of_others,
        "tests/security/test_tenant_visibility.py::test_entries_of_a_tenant_do_not_count_those_of_others",
        short=True,
    ),
    _shown(
        "F11",
        "a Redis that says that everything is processed, and that leases are taken",
        "no result is lost, no run doubled, no service stopped for good",
        "tests/security/test_poisoned_redis.py::test_a_fleet_with_a_poisoned_redis_executes_every_run_once",
        "tests/security/test_poisoned_redis.py::test_a_poisoned_lease_stops_no_service_for_good",
    ),
    _shown(
        "F12",
        "a database file that is exchanged, a foreign log, a second name",
        "the scheduler stops, or does not start",
        "tests/security/test_database_file.py::test_a_scheduler_stops_deciding_when_its_file_is_gone_and_doctor_says_so",
        "tests/security/test_database_file.py::test_the_log_of_another_database_is_refused_and_changes_nothing",
        "tests/security/test_database_file.py::test_a_second_name_of_the_file_is_refused",
    ),
    _shown(
        "F13",
        "a request of the largest size to every route",
        "holds the scheduler for milliseconds",
        "tests/security/test_request_cost.py::test_a_request_of_the_largest_size_holds_the_scheduler_for_milliseconds",
    ),
    _live(
        "F14",
        "one plan of hundreds of jobs that each cost as much as one may",
        "holds up no other caller, and is refused beyond 20 s of processor time",
        api.costly_plans,
        "tests/security/test_request_shares.py::test_a_plan_of_many_costly_jobs_holds_up_no_other_caller",
        "tests/security/test_request_cost.py::test_jobs_that_cost_too_much_together_are_refused",
    ),
    _shown(
        "F15",
        "a NATS user without enrolment that names thousands of workers",
        "limited together; enrolled workers are answered",
        "tests/services/remote/test_registry_limits.py::test_a_flood_of_workers_is_neither_registered_nor_read_and_others_keep_their_leases",
        "tests/services/remote/test_registry_limits.py::test_a_flood_of_names_leaves_slots_to_enrolled_workers",
    ),
    _shown(
        "F16",
        "a probe with a token in another form, or with two",
        "answered as a stranger's, and counted as a failed authentication",
        "tests/api/test_system_routes.py::test_a_token_of_another_form_is_told_what_a_stranger_is_told",
    ),
)

CORPUS = (
    *API_AND_DEFINITIONS, *YAML_FILES, *COMMANDS, *WEBHOOKS, *TOKENS, *DASHBOARD, *BUS, *SECRETS_AND_FILES, *FURTHER,
)  # fmt: skip

#: How many rows each section has.
SECTIONS = {"A": 36, "Y": 18, "P": 30, "W": 17, "J": 20, "D": 12, "B": 14, "X": 14, "F": 16}


def report() -> Iterator[str]:
    """The lines of the table, and a summary with the features that rows wait for."""
    for row in CORPUS:
        yield f"{row.id}  {row.title}: {row.holds}"
        if row.execute:
            yield f"     executed on {', '.join(row.shapes)}"
        yield from (f"     {name}" for name in row.tests)
        if row.later:
            yield f"     later: {row.later}"
    executed = sum(row.execute is not None for row in CORPUS)
    shown = sum(row.execute is None and bool(row.tests) for row in CORPUS)
    yield f"{len(CORPUS)} attacks: {executed} executed here, {shown} shown by other tests"
    for feature, count in Counter(row.later for row in CORPUS if row.later).most_common():
        alone = sum(row.later == feature and not row.execute and not row.tests for row in CORPUS)
        yield f"     {count} wait for {feature}, {alone} of them with nothing to test yet"


if __name__ == "__main__":
    print(*report(), sep="\n")  # noqa: T201 - the report
