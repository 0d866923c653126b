"""The page about approvals: its walk-through works on a running server, and its tables name every field and status."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

import gnomon
from gnomon.adapters.policy_file import parse_policy
from gnomon.core.approvals.model import ApprovalStatus
from gnomon.core.approvals.terms import ApprovalTerms
from gnomon.core.explain.approvals import APPROVAL_SENTENCES
from gnomon.core.model import DAY_MS
from gnomon.core.policy.reader import APPROVAL_FIELDS
from support.command_line import run_command
from support.gnomon_processes import up

PAGE = (Path(__file__).parents[2] / "docs" / "approvals.md").read_text()
#: Each file that the page shows begins with its name.
FILES = dict(re.findall(r"^```yaml\n# (\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
PREPARED, ASKED, VOTED = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
REFUSED = "# refused"


def test_the_rule_of_the_page_asks_for_two_members_of_finance() -> None:
    [rule] = parse_policy(FILES["policy.yaml"], name="policy.yaml").rules

    assert rule.approval == ApprovalTerms(groups=("finance",), quorum=2, expires_ms=DAY_MS)


def test_the_tables_name_every_field_status_and_sentence() -> None:
    for field in APPROVAL_FIELDS:
        assert f"| `{field}` |" in PAGE
    for status in ApprovalStatus:
        assert f"| `{status}` |" in PAGE
    for status in set(APPROVAL_SENTENCES) - {ApprovalStatus.REVOKED}:
        [begins] = re.findall(r"(has|was given|was rejected|expired|is void)", APPROVAL_SENTENCES[status])[:1]
        assert f"Approval apr_… of it {begins}" in PAGE


class Walk:
    """Runs the commands of the page, against a server once there is one."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.server = folder, ""
        #: The words in place of those of the page.
        self.named: dict[str, str] = {}

    def run(self, line: str) -> "subprocess.CompletedProcess[str]":
        """Run a command, and check that it is refused if the page says so."""
        command, _, remark = line.partition("  #")
        words = [self.named.get(word, word) for word in shlex.split(command)][1:]
        target: list[str] = []
        if ">" in words:
            at = words.index(">")
            words, target = words[:at], words[at + 1 :]
        done = run_command(*(("--server", self.server) if self.server else ()), *words, folder=self.folder)
        assert (done.returncode != 0) == (remark.strip() == "refused"), (line, done.stdout, done.stderr)
        for name in target:
            (self.folder / name).write_text(done.stdout)
            (self.folder / name).chmod(0o600)
        return done


@pytest.mark.req("R-03")
def test_the_walk_through_of_the_page_works_on_a_running_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GNOMON_DATABASE__URL", f"sqlite:///{tmp_path}/gnomon.db")
    for name, body in FILES.items():
        (tmp_path / name).write_text(body)
    walk = Walk(tmp_path)
    *prepared, started = PREPARED.splitlines()
    for line in prepared:
        walk.run(line)
    assert started == "gnomon up --jobs jobs.yaml"

    with up(tmp_path / "gnomon.db", "--jobs", str(tmp_path / "jobs.yaml"), "--port", "0") as running:
        walk.server = running.line_with("answering on ").split()[-1]
        token = (tmp_path / "carl.token").read_text().strip()
        with gnomon.Client(walk.server, token=token) as carl:
            trigger, *looks = ASKED.splitlines()
            with carl.changes() as changes:
                walk.run(trigger)
                assert any(change.kind == "approval" for change in changes)
            [asked] = carl.approvals(status="waiting")
            walk.named = {"ID": asked.approval_id, "HEX": asked.digest[:8]}
            said = [walk.run(line) for line in looks]
            votes = [walk.run(line) for line in VOTED.splitlines()[:-1]]
            ended = carl.finished(asked.execution_id or "", timeout=60)
            why = walk.run(VOTED.splitlines()[-1]).stdout

    assert asked.approval_id in said[0].stdout
    assert "2 persons in finance within 1d" in said[1].stdout
    assert "may not vote on it" in said[2].stderr
    assert "has 1 of 2 votes" in votes[0].stdout
    assert "has voted on approval" in votes[1].stderr
    assert "approved by carl and dora" in votes[2].stdout
    assert ended.status == "completed"
    assert "approved by carl and dora" in " ".join(why.split())
