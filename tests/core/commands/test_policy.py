"""Which commands are under the policy, in which order its rules apply, and what a verdict tells."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from gnomon.config.sections import SecuritySettings
from gnomon.core.commands.files import TextFiles
from gnomon.core.commands.plan import CommandPlan, Connector, OutputTarget, PlannedCommand, PlannedPipeline
from gnomon.core.commands.policy import (
    ANY_NUMBER,
    Autonomy,
    CommandPolicy,
    CommandVerdict,
    PolicyRule,
    SecurityProfile,
    check_command,
    policy_for,
)
from gnomon.core.commands.programs import Risk
from gnomon.core.jobs.origins import OriginKind
from gnomon.errors import CommandRefused
from support.folder_files import FolderFiles
from support.processor_time import is_done_within

WORKSPACE = "/srv/work"
GUARDED = CommandPolicy()
FULL = replace(GUARDED, autonomy=Autonomy.FULL)
LOCAL = {OriginKind.FILE, OriginKind.IMPORT, OriginKind.CLI}


def check(
    text: str,
    policy: CommandPolicy = GUARDED,
    *,
    approved: bool = False,
    **variables: str | None,
) -> CommandVerdict:
    return check_command(
        policy, text, variables=variables, files=TextFiles(WORKSPACE), workspace=WORKSPACE, approved=approved
    )


@pytest.mark.req("Z-04")
@pytest.mark.parametrize("kind", list(OriginKind))
def test_by_default_commands_are_open_if_their_author_has_a_shell_of_the_machine(kind: OriginKind) -> None:
    for origin in (kind.value, f"{kind}:name"):
        assert (policy_for(SecuritySettings(), origin) is None) is (kind in LOCAL)


@pytest.mark.req("Z-04")
@pytest.mark.parametrize("origin", ["", "model", "agent:x", "files:x", "FILE", "cli2", ":file"])
def test_commands_of_an_origin_that_is_none_of_these_are_guarded(origin: str) -> None:
    assert policy_for(SecuritySettings(), origin) == GUARDED


@pytest.mark.req("Z-04")
@pytest.mark.parametrize("origin", ["file:/x", "api", ""])
def test_a_profile_decides_for_all_origins(origin: str) -> None:
    assert policy_for(SecuritySettings(profile=SecurityProfile.OPEN), origin) is None
    assert policy_for(SecuritySettings(profile=SecurityProfile.GUARDED), origin) == GUARDED


@pytest.mark.req("Z-04")
@pytest.mark.parametrize("profile", [SecurityProfile.OPEN, SecurityProfile.AUTO])
@pytest.mark.parametrize(
    ("settings", "refused", "allowed"),
    [
        (SecuritySettings(autonomy=Autonomy.READ_ONLY), "ls", None),
        (SecuritySettings(autonomy=Autonomy.SUPERVISED), "touch x", "ls /etc"),
        (SecuritySettings(autonomy=Autonomy.FULL), "ls > x", "touch /etc/x"),
        (SecuritySettings(allowed_commands=("ls",)), "cat x", "ls /etc"),
        (SecuritySettings(allowed_commands=()), "ls", None),
        (SecuritySettings(forbidden_paths=("/data",)), "cat /data/x", "cat /etc/passwd"),
        (SecuritySettings(workspace_only=True), "cat /data/x", "rm x"),
        (SecuritySettings(approve_medium_risk=True), "touch x", "cat /etc/passwd"),
        (SecuritySettings(block_high_risk=True), "rm x", "touch /etc/x"),
        (SecuritySettings(max_actions_per_hour=7), "ls; (pwd)", "rm /etc/x"),
    ],
)
def test_a_setting_holds_for_open_commands_and_brings_the_grammar_but_no_other_default(
    settings: SecuritySettings, profile: SecurityProfile, refused: str, allowed: str | None
) -> None:
    policy = policy_for(replace(settings, profile=profile), "file:/etc/jobs.yaml")

    assert policy is not None
    assert not check(refused, policy).allowed
    assert not check("echo $(id)", policy).allowed
    assert allowed is None or check(allowed, policy).reason == ""


def test_settings_that_limit_nothing_leave_commands_open() -> None:
    settings = SecuritySettings(allowed_roots=("/data",), path=("/opt/bin",), max_actions_per_hour=ANY_NUMBER)

    assert policy_for(settings, "cli") is None


@pytest.mark.req("Z-04", "Z-05")
@pytest.mark.parametrize(
    ("text", "policy", "reason"),
    [
        ("rm -rf /etc > x", replace(GUARDED, autonomy=Autonomy.READ_ONLY), "autonomy is read-only"),
        (
            "LD_PRELOAD=x rm /etc >x",
            GUARDED,
            "command not allowed: LD_PRELOAD=x rm /etc >x (at character 22, it writes",
        ),
        (
            "LD_PRELOAD=x rm /etc",
            GUARDED,
            "command not allowed: LD_PRELOAD=x rm /etc (at character 1, LD_PRELOAD is no",
        ),
        (
            "find /etc -delete | rm",
            GUARDED,
            "command not allowed: find /etc -delete | rm (at character 21, rm is not in",
        ),
        ("find /etc -delete", GUARDED, "command not allowed: find /etc -delete (at character 11, find may not be"),
        ("git push /etc", GUARDED, "forbidden path argument: /etc"),
        ("git push", GUARDED, "command not allowed: git push (at character 1, git is of medium risk here: gnomon"),
    ],
)
def test_the_rules_apply_in_one_order_and_say_why(text: str, policy: CommandPolicy, reason: str) -> None:
    verdict = check(text, policy)

    assert verdict.reason.startswith(reason)
    assert str(CommandRefused(verdict.reason)).startswith(f"blocked by security policy: {reason}")


def test_a_reason_is_printable() -> None:
    assert check("ls \x1b[31m").reason.startswith(r"command not allowed: ls \x1b[31m (at character 4, it has the")
    assert check("cat '/a\nb'").reason == r"forbidden path argument: /a\nb"
    assert check("ls \ud800").reason.isprintable()


def test_a_long_command_is_shortened_in_the_reason() -> None:
    assert len(check(f"rm {'x' * 16_000}").reason) < 250


@pytest.mark.req("Z-04")
@pytest.mark.parametrize(
    ("text", "risk"),
    [
        ("ls", Risk.LOW),
        ("git log", Risk.LOW),
        ("git push", Risk.MEDIUM),
        ("ls | git -C x --no-pager push", Risk.MEDIUM),
        ("npm ls push", Risk.LOW),
        ("npm view x", Risk.MEDIUM),
        ("git ls-remote .", Risk.MEDIUM),
        ("git remote", Risk.LOW),
        ("pip list", Risk.LOW),
        ("pip list --outdated", Risk.MEDIUM),
        ("git -C log push", Risk.MEDIUM),
        ("cargo version", Risk.LOW),
        ("touch x", Risk.MEDIUM),
        ("rm x", Risk.HIGH),
        ("touch x && rm x", Risk.HIGH),
        ("curl https://x.org", Risk.HIGH),
        ("mkfs.ext4 x", Risk.HIGH),
    ],
)
def test_the_risk_of_a_command_is_that_of_its_worst_program(text: str, risk: Risk) -> None:
    assert check(text, replace(FULL, allowed_commands=None, block_high_risk=False)).risk is risk


@pytest.mark.req("Z-04")
def test_medium_risk_needs_an_approval_under_supervision_and_says_what_to_type() -> None:
    verdict = check("git push")

    assert verdict.rule is PolicyRule.APPROVAL
    assert "gnomon approvals ask NAME" in verdict.reason
    assert check("git push", approved=True).allowed
    assert check("git push", FULL).allowed
    assert check("git push", replace(GUARDED, approve_medium_risk=False)).allowed


def test_an_approval_lets_nothing_else_pass() -> None:
    for text in ("rm x", "git push /etc", "git push > x", "find . -delete"):
        assert not check(text, approved=True).allowed


def test_high_risk_is_refused_unless_the_program_is_listed_by_its_name() -> None:
    any_program = replace(FULL, allowed_commands=None)

    assert check("rm x", any_program).rule is PolicyRule.RISK
    assert check("rm x", replace(any_program, block_high_risk=False)).allowed
    assert check("rm x", replace(FULL, allowed_commands=("rm",), commands_are_chosen=True)).allowed
    assert check("rm x", replace(GUARDED, allowed_commands=("rm",), commands_are_chosen=True)).rule is (
        PolicyRule.APPROVAL
    )


@pytest.mark.req("Z-04")
def test_a_value_that_is_not_known_yet_is_checked_as_far_as_possible() -> None:
    assert check("cat $name", name=None).allowed
    assert check("cat $name", name=None).plan is None
    assert check("cat $name", name=None).words == (("cat", "$name"),)
    assert check("cat /etc/$name", name=None).rule is PolicyRule.PATH
    assert check("cat ../$name", name=None).rule is PolicyRule.PATH
    assert check("$name x", name=None).rule is PolicyRule.COMMAND
    assert check("cat $name", name="/etc/passwd").rule is PolicyRule.PATH


@pytest.mark.guarantee("S24")
def test_a_reason_shows_no_value_of_a_variable() -> None:
    texts = "cat /$secret|cat --x=../$secret|$secret|find . -exec $secret|cat < /$secret|x=/$secret ls".split("|")
    for text in texts:
        verdict = check(text, secret="hunter2")  # noqa: S106 - not a real one

        assert not verdict.allowed
        assert "hunter2" not in verdict.reason


@pytest.mark.guarantee("S24")
def test_a_pattern_reveals_nothing_about_files_outside_of_the_workspace(tmp_path: Path) -> None:
    class WatchedFiles(FolderFiles):
        listed: list[str] = []  # noqa: RUF012 - of one test

        def matches(self, pattern: str) -> Sequence[str] | None:
            self.listed.append(pattern)
            return super().matches(pattern)

    for name in ("ws/data", "keys/ada"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "ws/way").symlink_to("../keys")
    files = WatchedFiles(tmp_path / "ws")
    policy = replace(FULL, path=("/bin", "/usr/bin"))

    def reason(text: str) -> str:
        verdict = check_command(policy, text, variables={}, files=files, workspace=str(tmp_path / "ws"), approved=False)
        assert verdict.rule is PolicyRule.PATH
        return verdict.reason

    for pattern in ("../keys/*", "../keys/a*", "../keys/zzz*", "way/*", f"{tmp_path}/*", "/*", "/*/*"):
        assert reason(f"cat {pattern}") == f"forbidden path argument: {pattern}"
    assert files.listed == []
    assert reason("cat w*") == "forbidden path argument: w*"
    assert reason("cat */*") == "forbidden path argument: */*"


@pytest.mark.req("Z-04")
def test_the_variables_of_the_step_must_be_harmless_too() -> None:
    assert check("ls", LD_PRELOAD="x.so").rule is PolicyRule.VARIABLE
    assert "env.LD_PRELOAD" in check("ls", LD_PRELOAD=None).reason
    assert check("ls", TZ=":/etc/passwd").reason == "forbidden path argument: env.TZ"
    assert check("ls", TZ="Europe/Berlin", name="/etc/passwd").allowed


def test_a_plan_holds_the_words_and_nothing_else() -> None:
    verdict = check("""NAME='a b' cat "x y" <in 2>&1 | wc -l >/dev/null 2>&1 && ls *x; pwd || echo $name""", name="v w")
    assert verdict.allowed
    assert verdict.plan is None, "a pattern cannot be known by the text alone"

    plan = check("""NAME='a b' cat "x y" <in 2>&1 | wc -l >/dev/null 2>&1 && ls; pwd || echo $name""", name="v w").plan

    def command(*words: str, **more: object) -> PlannedCommand:
        planned = {"program": f"/usr/local/bin/{words[0]}", "words": words, **more}
        return PlannedCommand(**planned)  # type: ignore[arg-type]

    assert plan == CommandPlan(
        pipelines=(
            PlannedPipeline(
                connector=Connector.ALWAYS,
                commands=(
                    command(
                        "cat", "x y", variables={"NAME": "a b"}, stdin=f"{WORKSPACE}/in", stderr=OutputTarget.STDOUT
                    ),
                    command("wc", "-l", stdout=OutputTarget.NULL, stderr=OutputTarget.NULL),
                ),
            ),
            PlannedPipeline(connector=Connector.AND, commands=(command("ls"),)),
            PlannedPipeline(connector=Connector.ALWAYS, commands=(command("pwd"),)),
            PlannedPipeline(connector=Connector.OR, commands=(command("echo", "v w"),)),
        )
    )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A workspace with a program, and programs beside it."""
    for name in ("ws/bin/tool", "bin/tool", "other/tool", "bin/busybox"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("#!/bin/false\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "bin/inside").symlink_to("../ws/bin/tool")
    (tmp_path / "bin/ls").symlink_to("busybox")
    (tmp_path / "bin/notes").write_text("no program\n")
    return tmp_path


def on_files(home: Path, text: str, *, allowed: tuple[str, ...] | None, path: str) -> CommandVerdict:
    policy = replace(FULL, allowed_commands=allowed, path=tuple(str(home / one) for one in path.split()))
    workspace = home / "ws"
    return check_command(
        policy, text, variables={}, files=FolderFiles(workspace), workspace=str(workspace), approved=False
    )


@pytest.mark.req("Z-04", "Z-13")
def test_a_program_is_found_on_the_path_and_never_in_the_workspace(home: Path) -> None:
    found = on_files(home, "tool x", allowed=("tool",), path="missing other bin").plan

    assert found is not None
    assert found.pipelines[0].commands[0].program == str(home / "other/tool")
    for text, path in (("tool", "ws/bin"), ("inside", "bin"), ("missing", "bin"), ("notes", "bin"), ("tool", "")):
        assert (
            on_files(home, text, allowed=("tool", "inside", "missing", "notes"), path=path).rule is PolicyRule.COMMAND
        )


@pytest.mark.req("Z-04")
def test_an_entry_with_a_slash_allows_that_file_alone(home: Path) -> None:
    entry = str(home / "other/tool")
    found = on_files(home, f"{entry} x", allowed=(entry,), path="bin").plan

    assert found is not None
    assert found.pipelines[0].commands[0].program == entry
    for text in ("tool", f"{home}/bin/tool", f"{home}/other//tool", f"{home}/other/../other/tool", "../other/tool"):
        assert on_files(home, text, allowed=(entry,), path="bin other").rule is PolicyRule.COMMAND
    inside = str(home / "ws/bin/tool")
    assert on_files(home, inside, allowed=(inside,), path="bin").rule is PolicyRule.COMMAND
    assert on_files(home, entry, allowed=None, path="bin").rule is PolicyRule.COMMAND


@pytest.mark.req("Z-04", "Z-13")
def test_a_program_that_commands_may_write_is_refused(home: Path) -> None:
    """A command could replace it by a program of its own."""
    (home / "link").symlink_to("other")
    script = str(home / "other/tool")
    for root in ("other", "link"):
        policy = replace(
            FULL, allowed_commands=("tool", script), allowed_roots=(str(home / root),), path=(str(home / "other"),)
        )
        for text in ("tool", script):
            verdict = check_command(
                policy, text, variables={}, files=FolderFiles(home / "ws"), workspace=f"{home}/ws", approved=False
            )
            assert verdict.rule is PolicyRule.COMMAND
            assert "security.allowed_roots, which commands may write" in verdict.reason


def test_a_file_with_many_programs_is_the_program_that_it_is_called(home: Path) -> None:
    assert on_files(home, "ls -l", allowed=("ls",), path="bin").allowed
    assert on_files(home, "busybox ls", allowed=("busybox",), path="bin").rule is PolicyRule.COMMAND


@pytest.mark.req("Z-05")
@pytest.mark.parametrize(
    ("path", "is_refused"),
    [
        ("/srv/work/x", False),
        ("/srv/work", False),
        ("/srv/works", True),
        ("/srv", True),
        ("/opt/data/x", False),
        ("/opt/data/../x", True),
        ("/opt/data/keys/x", True),
        ("/opt/x", True),
        ("/home/ada/.ssh/id", True),
        ("/home/ada/x", False),
        ("/home/ada/.sshd", False),
        ("/home/.ssh", False),
        ("/var/lib/gnomon/.ssh/id", True),
        ("/var/lib/gnomon/x", False),
    ],
)
def test_the_nearest_of_roots_and_forbidden_paths_decides(path: str, is_refused: bool) -> None:  # noqa: FBT001 - a column
    policy = replace(
        FULL,
        forbidden_paths=("/opt", "/opt/data/keys", "~/.ssh/"),
        allowed_roots=("/opt/data", "/home", "/var/lib"),
        home="/var/lib/gnomon",
    )

    assert (check(f"cat {path}", policy).rule is PolicyRule.PATH) is is_refused


@pytest.mark.req("Z-05")
def test_a_forbidden_path_is_compared_by_where_it_leads(tmp_path: Path) -> None:
    for folder in ("ws", "real/keys"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "linked").symlink_to("real")
    (tmp_path / "ws/way").symlink_to("../real/keys")

    def rule(text: str, *, forbidden: str) -> PolicyRule | None:
        policy = replace(
            FULL, forbidden_paths=(str(tmp_path / forbidden),), workspace_only=False, path=("/bin", "/usr/bin")
        )
        files = FolderFiles(tmp_path / "ws")
        return check_command(
            policy, text, variables={}, files=files, workspace=str(tmp_path / "ws"), approved=False
        ).rule

    assert rule("cat ../real/keys/x", forbidden="linked/keys") is PolicyRule.PATH
    assert rule("cat ../linked/keys/x", forbidden="real/keys") is PolicyRule.PATH
    assert rule("cat way/x", forbidden="linked/keys") is PolicyRule.PATH
    assert rule("cat ../real/x", forbidden="linked/keys") is None


def on_a_worker(folder: Path, text: str, **settings: object) -> CommandVerdict:
    policy = replace(FULL, path=("/bin", "/usr/bin"), **settings)
    files = FolderFiles(folder)
    return check_command(policy, text, variables={}, files=files, workspace=str(folder), approved=False)


@pytest.mark.req("Z-05")
def test_a_folder_may_not_be_named_if_a_forbidden_path_lies_in_it(tmp_path: Path) -> None:
    for folder in ("ws/private", "ws/data/deep", "ws/other"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "ws/private/key").write_text("X\n")
    (tmp_path / "ws/way").symlink_to(".")

    def rule(text: str, *forbidden: str) -> PolicyRule | None:
        entries = tuple(str(tmp_path / "ws" / entry) for entry in forbidden)
        return on_a_worker(tmp_path / "ws", text, forbidden_paths=entries).rule

    for text in (
        "cat private/key",
        "grep -r X .",
        "grep -rX",
        "grep -r X ./data/..",
        "find",
        "ls -R",
        "grep -r X way",
        "grep -rm 1 X",
    ):
        assert rule(text, "private") is PolicyRule.PATH, text
        assert rule(text.replace("private/key", "other"), "missing") is None, text
    for text in ("ls", "grep X other", "ls ./o*", "grep -r X other", "grep -r X data"):
        assert rule(text, "private") is None, text
    assert rule("grep -r X data", "data/deep") is PolicyRule.PATH
    assert rule("ls ./*", "private") is PolicyRule.PATH


@pytest.mark.req("Z-05")
def test_a_home_that_is_the_workspace_may_not_be_named_while_it_has_keys(tmp_path: Path) -> None:
    home = str(tmp_path)
    policy = replace(FULL, path=("/bin", "/usr/bin"), home=home, forbidden_paths=("~/.ssh", "~/.aws"))

    def rule() -> PolicyRule | None:
        files = FolderFiles(tmp_path)
        return check_command(policy, "grep -r X .", variables={}, files=files, workspace=home, approved=False).rule

    assert rule() is None
    (tmp_path / ".aws").mkdir()
    assert rule() is PolicyRule.PATH


@pytest.mark.req("Z-05")
def test_a_server_which_has_not_the_files_takes_a_forbidden_path_for_one_that_is_there() -> None:
    policy = replace(FULL, forbidden_paths=(f"{WORKSPACE}/private",))

    assert check("grep -r X .", policy).reason == "forbidden path argument: . (a forbidden path lies in it)"
    assert check("grep -r X data", policy).allowed
    for workspace, is_refused in (("/home/ada", True), ("/root", True), ("/home/ada/work", False)):
        verdict = check_command(
            FULL, "cat .", variables={}, files=TextFiles(workspace), workspace=workspace, approved=False
        )
        assert verdict.allowed is not is_refused


@pytest.mark.guarantee("S24")
def test_a_pattern_behind_a_link_that_leads_out_reveals_nothing(tmp_path: Path) -> None:
    for folder in ("ws/data", "ws/deep/data", "keys/below"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("keys/ada", "keys/below/x", "ws/data/x"):
        (tmp_path / file).write_text("x\n")
    (tmp_path / "ws/out").symlink_to("../keys")
    (tmp_path / "ws/deep/data/out").symlink_to("../../../keys")

    for pattern in ("o*/{}", "ou[t]/{}", "deep/*/out/{}", "*/{}", "d*/d*/o*/{}", "o*/below/{}"):
        verdicts = [on_a_worker(tmp_path / "ws", f"echo {pattern.format(name)}") for name in ("ad[a]", "nop[e]")]

        assert [verdict.rule for verdict in verdicts] == [PolicyRule.PATH] * 2, pattern
    assert on_a_worker(tmp_path / "ws", "echo d*/[x]").words == (("echo", "data/x"),)


LONGEST = 16_384
HOSTILE = {
    "words": "ls " + "a " * 8000,
    "quotes": "ls " + "''" * 8000,
    "double quotes": "ls " + '""' * 8000,
    "patterns": "ls " + "*" * 16_000,
    "many patterns": "ls " + "* " * 8000,
    "programs": "ls;" * 5400,
    "pipes": "|".join(["ls"] * 5000),
    "variables": "ls " + "$a" * 8000,
    "words of variables": "ls " + "$a " * 5000,
    "separators": "echo " + "," * 16_000,
    "separators and paths": "echo " + ",a/../b" * 2300,
    "equals signs": "echo " + "=x" * 8000,
    "letters of options": "grep -" + "n" * 16_000,
    "options": "grep " + "-nf/x " * 2600,
    "URLs": "echo " + "a://b" * 3200,
    "file URLs": "echo " + "file://" * 2300,
    "slashes": "echo " + "/" * 16_000,
    "folders above": "echo a" + "/.." * 5400,
    "digits": "echo " + "1" * 16_000,
    "brackets": "echo " + "[a" * 8000,
    "pairs of brackets": "echo " + "[a-z]" * 3200,
    "a range without an end": "echo [" + "a-b" * 5400,
    "assignments": "A=1 " * 4000 + "ls",
    "continued lines": "ls " + "\\\n " * 5400,
    "sed": "sed s/" + "\\a" * 8000,
    "scripts of sed": "sed " + "-e p " * 3200,
    "a script of sed": "sed '" + "p;" * 8000 + "'",
    "spaces of sed": "sed '" + " " * 16_000 + "'",
    "spaces behind an address of sed": "sed '1" + " " * 16_000 + "'",
    "separators of sed": "sed '" + ";" * 16_000 + "'",
    "flags of sed": "sed 's/a/b/" + "g" * 16_000 + "!'",
    "addresses of sed": "sed '/" + "\\/" * 8000 + "'",
    "awk": "awk '" + "||" * 8000 + "'",
    "repositories": "git log " + ".git/" * 3200,
    "transports": "git log " + "a:" * 8000,
    "tests of find": "find " + "! " * 8000,
    "backslashes": "ls " + "\\a" * 8000,
    "JSON": "echo '" + '{"a":"http://x/y","b":[1,2]},' * 560 + "'",
    "words that are not known": "ls " + "$u" * 8000,
}


#: Texts whose variables make them long. In each of them `$a` has the value.
HOSTILE_VALUES = {
    "paths": ("cat " + " $a" * 5000, "x/" * 100),
    "longest paths": ("cat" + " $a" * 250, "a/" * 2040),
    "paths that differ": (
        "cat" + "".join(f" $a{{{n}}}" for n in range(250)).translate({123: "'", 125: "'"}),
        "a/" * 2040,
    ),
    "paths behind equals signs": ("cat " + " ".join(["=" + "=a/" * 1300] * 4), ""),
    "options with paths": ("cat" + (" -" + "a" * 120 + "=" + "b/" * 60) * 60, ""),
    "options that differ": ("cat" + "".join(f" -{'a' * 120}{n}={'b/' * 60}" for n in range(60)), ""),
    "words": ("cat" + " a" * 8000, ""),
    "words that differ": ("cat" + "".join(f" {n}" for n in range(3000)), ""),
    "separators": ("cat $a $a,b $a,c", "=" * 131_000),
    "encoded characters": ("cat $a $a,b", "file://" + "%41" * 40_000),
    "repositories": ("git log" + " $a" * 7, "x.git" * 26_000),
    "transports": ("git log" + " $a" * 7, "=a:" * 43_000),
    "patterns": ("cat" + " *$a" * 190, "x/" * 60_000),
    "links": ("cat $a", "../" * 40_000),
}


@pytest.mark.parametrize("text", [pytest.param(text[:LONGEST], id=name) for name, text in HOSTILE.items()])
def test_the_longest_text_takes_a_moment_to_check(text: str) -> None:
    any_program = replace(FULL, allowed_commands=None)

    # It takes less than 50 ms; what is not linear takes seconds.
    assert is_done_within(1, lambda: check(text, any_program, a="x" * 1000, u=None))


def test_the_cost_grows_with_the_length_of_a_text() -> None:
    """Twice the text never has four times the parts that are looked at."""
    seen = 0

    class CountingFiles(TextFiles):
        def resolve(self, path: str) -> str:
            nonlocal seen
            seen += 1 + path.count("/") + len(path) // 100
            return super().resolve(path)

    def cost(text: str, value: str = "x") -> int:
        nonlocal seen
        seen = 0
        check_command(
            replace(FULL, allowed_commands=None),
            text,
            variables={"a": value, "u": None},
            files=CountingFiles(WORKSPACE),
            workspace=WORKSPACE,
            approved=False,
        )
        return seen

    for name, text in HOSTILE.items():
        assert cost(text[:LONGEST]) < 60_000, name
    for name, (text, value) in HOSTILE_VALUES.items():
        assert cost(text[:LONGEST], value) < 60_000, name


@pytest.mark.req("Z-05")
def test_a_text_that_costs_too_much_is_refused_and_says_why() -> None:
    for name in ("paths that differ", "paths behind equals signs", "options that differ", "separators"):
        text, value = HOSTILE_VALUES[name]
        verdict = check(text[:LONGEST], a=value)

        assert verdict.rule is PolicyRule.PATH, name
        assert verdict.reason.endswith("(more parts of its words could be paths than can be checked)")
    assert "has more than 2500 words" in check("cat" + " a" * 2500).reason
    assert check("cat" + " a" * 2499).allowed
    assert "has a pattern of more than 4096 characters" in check("cat *$a", a="x/" * 3000).reason
    assert "has words of more than 5000 parts" in check("cat " + "''" * 5001).reason


def test_a_word_that_is_repeated_is_resolved_once() -> None:
    class CountingFiles(TextFiles):
        paths: list[str] = []  # noqa: RUF012 - of one test

        def resolve(self, path: str) -> str:
            self.paths.append(path)
            return super().resolve(path)

    files = CountingFiles(WORKSPACE)
    verdict = check_command(FULL, "cat" + " a/b" * 2000, variables={}, files=files, workspace=WORKSPACE, approved=False)

    assert verdict.allowed
    assert files.paths.count("a/b") == 1


def test_no_pattern_is_looked_for_after_one_that_cannot_be_known() -> None:
    class CountingFiles(TextFiles):
        patterns: list[str] = []  # noqa: RUF012 - of one test

        def matches(self, pattern: str) -> Sequence[str] | None:
            self.patterns.append(pattern)
            return super().matches(pattern)

    check_command(
        FULL, "ls a* b* c*", variables={}, files=CountingFiles(WORKSPACE), workspace=WORKSPACE, approved=False
    )

    assert CountingFiles.patterns == ["a*"]


@pytest.mark.req("Z-05")
@pytest.mark.parametrize("word", ["/proc/self/cwd/a.txt", "--file=/etc/of-the-workspace/a.txt"])
def test_a_path_counts_as_it_is_written_and_as_it_leads(word: str) -> None:
    """/proc/self is another folder for the program than for the check."""

    class LeadingFiles(TextFiles):
        def resolve(self, path: str) -> str:
            return f"{WORKSPACE}/a.txt" if path.endswith("/a.txt") else super().resolve(path)

    def verdict(text: str) -> CommandVerdict:
        files = LeadingFiles(WORKSPACE)
        return check_command(FULL, text, variables={}, files=files, workspace=WORKSPACE, approved=False)

    refused = verdict(f"grep -n x {word}")

    assert verdict("grep -n x sub/a.txt").allowed
    assert (refused.rule, "forbidden path argument" in refused.reason) == (PolicyRule.PATH, True)
