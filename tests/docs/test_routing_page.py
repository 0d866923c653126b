"""The example on the page about routing has the results that the table shows."""

import re
from pathlib import Path

import pytest
import yaml

from gnomon.core.jobs.routing_fields import read_pools
from gnomon.core.runs.routing import Unroutable, WorkerCandidate, route
from gnomon.core.runs.workflow import RoutingRequirements

PAGE = (Path(__file__).parents[2] / "docs" / "routing.md").read_text()
JOBS, POOLS = (yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
EXAMPLE = PAGE.split("### Example")[1].split("\n## ")[0]
ROWS = re.findall(r"^\| (nothing|`.*?`) \| (.*) \|$", EXAMPLE, re.MULTILINE)


@pytest.mark.parametrize(("required", "result"), ROWS)
def test_the_table_shows_where_a_task_goes(required: str, result: str) -> None:
    [job] = JOBS["jobs"]
    function = job["function"]
    workers = [
        WorkerCandidate(worker="w1", pool="gpu-eu", functions=frozenset({function}), slots=10, active=9),
        WorkerCandidate(worker="w2", pool="gpu-us", functions=frozenset({function}), slots=10, active=3),
    ]
    asked = RoutingRequirements(topic=job["topic"], requires=tuple(re.findall(r"`(\w+)`", required)))

    found = route(function, asked, workers, read_pools(POOLS))

    if isinstance(found, Unroutable):
        assert f"`{found.code}`" in result
    else:
        assert found.worker == "w2"
        assert "`gpu-us`" in result or "the same" in result


def test_there_are_rows() -> None:
    assert len(ROWS) == 4
