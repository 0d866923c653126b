"""How long it takes to read and check commands, from a short one to the longest text that is allowed."""

from time import process_time_ns

from gnomon.core.commands.files import TextFiles
from gnomon.core.commands.policy import Autonomy, CommandPolicy, check_command
from gnomon.core.commands.syntax import LONGEST_COMMAND
from report import table, write_section

WORKSPACE = "/srv/work"
ROUNDS = 15
SHORT = {
    "one program": "ls -la data",
    "a pipe": "grep -n 'a|b' notes.txt 2>/dev/null | head -20",
    "a variable": 'cat "$FILE" $later',
    "git": "git log --since=yesterday --format='%h %s' -- src docs",
    "refused: a path": "cat data/../../secret",
    "refused: the grammar": "cat $(ls)",
    "four programs": "cat a/b.txt | grep -n 'some text' | head -20 && git log --oneline -5",
}
LONG = {
    "words": "ls " + "a " * LONGEST_COMMAND,
    "one word": "echo " + "a" * LONGEST_COMMAND,
    "quotes": "ls " + "''" * LONGEST_COMMAND,
    "separators": "echo " + "=x" * LONGEST_COMMAND,
    "options": "grep " + "-nf/x " * LONGEST_COMMAND,
    "folders": "echo " + "a/../" * LONGEST_COMMAND,
    "programs": "ls;" * 499 + "ls " + "a" * LONGEST_COMMAND,
}


def microseconds(text: str, count: int) -> float:
    """The processor time of one check: the best of some rounds, which other programs disturbed least."""
    policy = CommandPolicy(autonomy=Autonomy.FULL, workspace_only=True)
    times = []
    for _ in range(ROUNDS):
        began = process_time_ns()
        for _ in range(count):
            check_command(
                policy,
                text,
                variables={"FILE": "notes.txt", "later": None},
                files=TextFiles(WORKSPACE),
                workspace=WORKSPACE,
                approved=False,
            )
        times.append((process_time_ns() - began) / count / 1000)
    return min(times)


def main() -> None:
    rows = [
        [name, f"`{text}`".replace("|", "\\|"), f"{microseconds(text, 200):.0f} µs"] for name, text in SHORT.items()
    ]
    rows += [
        [f"{LONGEST_COMMAND} characters: {name}", "", f"{microseconds(text[:LONGEST_COMMAND], 3) / 1000:.1f} ms"]
        for name, text in LONG.items()
    ]
    write_section("Commands: reading and checking", table(["command", "text", "processor time of one check"], rows))


if __name__ == "__main__":
    main()
