"""The jobs file that an import writes: it says exactly what was meant, whatever that was."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gnomon.adapters.files import JobsFile
from gnomon.core.importers.report import ImportedEntry, ImportNote, ImportReport, skipped_entry
from gnomon.core.importers.writer import jobs_yaml


def written(tmp_path: Path, *entries: ImportedEntry, comments: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    file = tmp_path / "jobs.yaml"
    file.write_text(jobs_yaml(ImportReport(entries=entries, remarks=("about all",), comments=comments)))
    return JobsFile(file).mappings


def entry(**said: Any) -> ImportedEntry:  # noqa: ANN401 - whatever a job may say
    return ImportedEntry(place="x:1", original="x", job={"name": "a", **said})


@pytest.mark.parametrize(
    "text",
    ["plain", "yes", "NO", "on", "null", "~", "1e5", "010", "0x1f", "1:30", "2026-01-01", ".5", "-", "- a", "a: b",
     "a #b", "#", "", " ", " a", "a ", "'", '"', "\\", "it's", "a\nb", "a\n", "\t", "\x07", "\x85", "\u2028", "\ufeff",
     "*", "&a", "!x", "%", "@daily", "`", "{}", "[]", "é日🙂", "a,b", "<<", "=", "10m", "1d", "5"],
)  # fmt: skip
def test_a_text_is_read_back_as_it_was(tmp_path: Path, text: str) -> None:
    [read] = written(tmp_path, entry(command=text, env={"Y": text, "NO": text}))

    assert read == {"name": "a", "command": text, "env": {"Y": text, "NO": text}}


@given(st.text(st.characters(codec="utf-8")))
def test_so_is_any_text_also_by_other_readers(text: str) -> None:
    data = yaml.safe_load(jobs_yaml(ImportReport(entries=(entry(command=text),))))

    assert data == {"jobs": [{"name": "a", "command": text}]}


def test_numbers_switches_and_lists_stay_what_they_are(tmp_path: Path) -> None:
    said = {"enabled": False, "retry": {"max_attempts": 3}, "tags": ["a", "no"]}

    [read] = written(tmp_path, entry(**said))

    assert read == {"name": "a", **said}


@given(st.text(), st.text(), st.text())
def test_comments_cannot_become_anything_else(comment: str, note: str, original: str) -> None:
    one = ImportedEntry(place="x", original="x", job={"name": "a"}, comments=(comment,), notes=(ImportNote(note),))
    text = jobs_yaml(
        ImportReport(entries=(one, skipped_entry(original, original, note)), comments=(comment,), remarks=(note,))
    )

    assert yaml.safe_load(text) == {"jobs": [{"name": "a"}]}


def test_omitted_entries_leave_a_comment(tmp_path: Path) -> None:
    assert written(tmp_path, skipped_entry("x:3", "@reboot ls", "because", comments=("why",)), comments=("end",)) == []
    assert (tmp_path / "jobs.yaml").read_text() == (
        "# about all\njobs: []\n  # why\n  # left out: @reboot ls (x:3)\n  # note: because\n  # end\n"
    )
