"""`gnomon import`: convert crontabs, systemd timers and CronJobs to a jobs file, with a report on every entry."""

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import typer

from gnomon.app.files import read_import_file, read_yaml_documents
from gnomon.cli.inputs import parse_start
from gnomon.cli.output import printable
from gnomon.cli.reader_zone import local_zone
from gnomon.core.cron import known_zone
from gnomon.core.importers.crontab import read_crontab
from gnomon.core.importers.kubernetes import read_cronjobs
from gnomon.core.importers.report import ImportedEntry, ImportReport, merge_reports
from gnomon.core.importers.systemd import read_timers, service_of, template_of
from gnomon.core.importers.writer import jobs_yaml
from gnomon.core.instants import ms_of
from gnomon.errors import FileError

_STDIN = "-"
_LARGEST_INPUT = 4 * 2**20
#: The file names that cron itself reads in a folder of crontabs.
_CRONTAB_NAME = re.compile(r"[A-Za-z0-9_-]+")


def crontabs(files: Sequence[Path], *, timezone: str | None, system: bool) -> list[ImportReport]:
    """Convert crontabs."""
    zone = _zone(timezone)
    found = _files(files, lambda file: _CRONTAB_NAME.fullmatch(file.name) is not None)
    return [read_crontab(_text(file), place=_name(file), timezone=zone, system=system) for file in found]


def timers(files: Sequence[Path], *, timezone: str | None) -> list[ImportReport]:
    """Convert timers. The service of a timer that is given alone is read from the same folder."""
    found = list(_files(files, lambda file: file.suffix in (".timer", ".service")))
    units = {_name(file): _text(file) for file in found}
    for file in found:
        wanted = service_of(_name(file), units[_name(file)])
        if wanted is None or "/" in wanted:
            continue
        for beside in (file.with_name(wanted), file.with_name(template_of(wanted))):
            if beside.name not in units and beside.is_file():
                units[beside.name] = _text(beside)
    return [read_timers(units, timezone=_zone(timezone))]


def cronjobs(files: Sequence[Path]) -> list[ImportReport]:
    """Convert Kubernetes manifests."""
    found = _files(files, lambda file: file.suffix in (".yaml", ".yml", ".json"))
    return [read_cronjobs(read_yaml_documents(_name(file), _text(file)), place=_name(file)) for file in found]


def write_import(found: list[ImportReport], out: Path | None, *, force: bool, strict: bool) -> None:
    """Write the jobs file, and report on every entry."""
    imported = merge_reports(found, now=ms_of(parse_start(None)))
    text = jobs_yaml(imported)
    if out is not None:
        _write(out, text, force=force)
    sys.stderr.write("".join(f"{printable(line)}\n" for line in _report(imported)))
    if out is None:
        sys.stdout.write(text)
    if strict and not imported.whole:
        raise typer.Exit(1)


def _report(imported: ImportReport) -> Iterator[str]:
    places = max((len(entry.place) for entry in imported.entries), default=0)
    names = max((len(_named(entry)) for entry in imported.entries), default=0)
    for entry in imported.entries:
        yield f"{entry.place:<{places}}  {_named(entry):<{names}}  {_entry_result(entry)}"
    carried = sum(entry.job is not None for entry in imported.entries)
    whole = sum(entry.whole for entry in imported.entries)
    counted = f"{len(imported.entries)} found, {carried} carried over"
    yield counted + (f", {carried - whole} of them not whole" if carried > whole else "")
    yield from (f"note: {remark}" for remark in imported.remarks)


def _named(entry: ImportedEntry) -> str:
    return "-" if entry.job is None else str(entry.job["name"])


def _entry_result(entry: ImportedEntry) -> str:
    notes = "; ".join(note.text for note in entry.notes)
    if entry.job is None:
        return f"left out: {notes}"
    if not entry.notes:
        return "carried over"
    return f"carried over, {'but' if entry.whole else 'not whole'}: {notes}"


def _write(out: Path, text: str, *, force: bool) -> None:
    try:
        with out.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise FileError(out, "exists: --force overwrites it") from None
    except OSError as problem:
        raise FileError(out, f"cannot be written: {problem.strerror}") from None


def _files(named: Sequence[Path], wanted: Callable[[Path], bool]) -> Iterator[Path]:
    """The named files, and the matching files of named folders."""
    for path in named:
        if not path.is_dir():
            yield path
            continue
        try:
            yield from sorted(file for file in path.iterdir() if file.is_file() and wanted(file))
        except OSError as problem:
            raise FileError(path, f"cannot be read: {problem.strerror}") from None


def _text(file: Path) -> str:
    if str(file) != _STDIN:
        return read_import_file(file)
    content = sys.stdin.buffer.read(_LARGEST_INPUT + 1)
    if len(content) > _LARGEST_INPUT:
        raise FileError(_name(file), f"cannot be read: it has more than {_LARGEST_INPUT // 2**20} MiB")
    try:
        return content.decode()
    except UnicodeDecodeError as problem:
        raise FileError(_name(file), f"cannot be read: it is not UTF-8 at byte {problem.start}") from None


def _name(file: Path) -> str:
    return "stdin" if str(file) == _STDIN else file.name


def _zone(given: str | None) -> str:
    """The given time zone, which must exist, or that of this machine."""
    if given is not None:
        known_zone(given)
        return given
    return local_zone()
