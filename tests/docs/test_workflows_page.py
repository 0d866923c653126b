"""The page about workflows shows one job in Python and in YAML, and they are the same."""

import re
import subprocess
import sys
from pathlib import Path

import yaml

PAGE = (Path(__file__).parents[2] / "docs" / "workflows.md").read_text()
SECTION = PAGE.split("\n## In Python\n")[1].split("\n## ")[0]
#: Appended to the program of the page. In a process of its own, because functions are registered by name.
COMPARE = """
import sys
import yaml
from gnomon.runners.registry import FUNCTIONS

written, shown = (gnomon.read_jobs(jobs, now=0) for jobs in (FUNCTIONS.jobs, yaml.safe_load(sys.argv[1])["jobs"]))
sys.exit(None if written == shown else f"{written}\\n{shown}")
"""


def test_both_forms_define_the_same_job() -> None:
    [program] = re.findall(r"^```python\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)
    [shown] = re.findall(r"^```yaml\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)
    assert yaml.safe_load(shown)

    done = subprocess.run([sys.executable, "-c", program + COMPARE, shown], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
