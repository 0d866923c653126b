"""The page about NATS names every subject and stream that there is, and no other."""

import json
import re
from pathlib import Path

import pytest

from gnomon.core import subjects
from gnomon.core.messages import decode_task_message, encode_task_message

PAGE = (Path(__file__).parents[2] / "docs" / "nats.md").read_text()


@pytest.mark.req("H-13")
def test_every_subject_stands_on_the_page() -> None:
    named = set(re.findall(r"^\| `(mq\.[^`]+)`", PAGE, re.MULTILINE))
    filled = {name.format(job="a", pool="p", worker="w", stream=subjects.WORK) for name in named}

    assert filled == {
        subjects.work_subject("a"),
        subjects.work_subject("a", "p"),
        subjects.direct_subject("w"),
        subjects.report_subject("w"),
        subjects.heartbeat_subject("w"),
        subjects.grant_subject("w"),
        subjects.dead_subject(subjects.WORK),
    }
    assert {subjects.consumer_name(), subjects.consumer_name("p")} == {"job-executors", "job-executors-p"}


def test_every_stream_stands_on_the_page() -> None:
    named = set(re.findall(r"^\| `(GNOMON_\w+)`", PAGE, re.MULTILINE))

    assert named == {subjects.WORK, subjects.REPORTS, subjects.DEAD}


@pytest.mark.req("H-13")
def test_the_message_on_the_page_is_one_that_workers_read() -> None:
    [message] = re.findall(r"^```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

    task = decode_task_message(message.encode())

    written = json.loads(message)
    assert written == json.loads(encode_task_message(task, now=0)) | {"timestamp": written["timestamp"]}
    assert (task.function, task.timeout, task.fence) == ("reports/make", 300, 1)
    assert decode_task_message(message.replace('"step"', '"something newer": true, "step"').encode()) == task


@pytest.mark.parametrize("pool", ["default", "gpu", "a.b"])
@pytest.mark.parametrize("job", ["report", "every.day", "x.pool.gpu", "pool"])
def test_a_task_goes_to_its_own_pool_alone(job: str, pool: str) -> None:
    sent = subjects.work_subject(job, pool).split(".")
    takers = [one for one in ("default", "gpu", "a.b") if _matches(sent, subjects.pool_subjects(one).split("."))]

    assert takers == [pool]


def _matches(subject: list[str], pattern: list[str]) -> bool:
    return len(subject) == len(pattern) and all(b in ("*", a) for a, b in zip(subject, pattern, strict=True))
