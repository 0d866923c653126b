"""Reading policy files. The reader and its parser are imported when a policy is read: most processes have none."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gnomon.core.policy.document import PolicyDocument


def parse_policy_text(text: str, *, name: str = "policy") -> "PolicyDocument":
    """The policy in the text; FileError names the line and the field of the first mistake."""
    from gnomon.adapters.policy_file import parse_policy

    return parse_policy(text, name=name)


def read_policy_text(path: Path, *, guarded: bool) -> str:
    """The text of a policy file without mistakes; FileError names the file, and the line and field of the first one.

    With `guarded`, a file that others may write to is refused: it is about to be put in force.
    """
    from gnomon.adapters.files import read_text

    text = read_text(path, guarded=guarded)
    parse_policy_text(text, name=str(path))
    return text
