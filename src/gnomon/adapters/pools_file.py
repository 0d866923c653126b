"""The file that says which topics go to which pools. Read whole or refused, with the line that is wrong."""

from pathlib import Path

from gnomon.adapters.yaml_files import composed, sentence
from gnomon.core.jobs.routing_fields import read_pools
from gnomon.core.runs.routing import Pools
from gnomon.errors import FieldError, FileError


def read_pools_file(path: Path) -> Pools:
    """The table; FileError names the file, the line and the field of the first thing that is wrong."""
    root = composed(path, FileError, showing=True)
    try:
        return read_pools(root.plain())
    except FieldError as error:
        line, column = root.place_of(error.field)
        raise FileError(path, sentence(error), line=line, column=column, field=error.field) from None
