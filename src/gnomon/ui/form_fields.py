"""Reads the fields of a form from the body of a request, in both encodings that browsers use."""

import re
from collections.abc import Mapping, Sequence
from urllib.parse import parse_qsl

from msgspec import Struct

from gnomon.errors import FieldError

#: How many fields a form may have.
MOST_FIELDS = 200
_MULTIPART = "multipart/form-data"
_BOUNDARY = re.compile(r'boundary="?([0-9A-Za-z\'()+_,./:=?-]{1,70})"?\s*(?:;|$)')
_NAME = re.compile(r'\bname="([^"\r\n]{1,200})"')


class FormFields(Struct, frozen=True):
    """The fields of a form in their order. A name may occur several times."""

    pairs: Sequence[tuple[str, str]] = ()

    def as_mapping(self) -> Mapping[str, str]:
        """The last value of each field."""
        return dict(self.pairs)

    def values(self, name: str) -> list[str]:
        """Every value of a field, such as the rows that are ticked."""
        return [value for one, value in self.pairs if one == name]


def read_form_fields(content_type: str, raw: bytes) -> FormFields:
    """The fields of the form; FieldError if the body is none. A file is a field with its text."""
    try:
        if content_type.partition(";")[0].strip().lower() == _MULTIPART:
            return FormFields(_read_multipart(content_type, raw))
        return FormFields(parse_qsl(raw.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict"))
    except ValueError:
        raise FieldError("form", "", f"is not a form in UTF-8, or has more than {MOST_FIELDS} fields") from None


def _read_multipart(content_type: str, raw: bytes) -> list[tuple[str, str]]:
    boundary = _BOUNDARY.search(content_type)
    if boundary is None:
        raise ValueError("no boundary")
    # The first boundary has no line break before it.
    parts = (b"\r\n" + raw).split(b"\r\n--" + boundary[1].encode(), MOST_FIELDS + 1)
    if len(parts) < 2 or not parts[-1].startswith(b"--"):
        raise ValueError("no end")
    found = []
    for part in parts[1:-1]:
        head, separator, content = part.partition(b"\r\n\r\n")
        name = _NAME.search(head.decode())
        if name is None or not separator:
            raise ValueError("no name")
        found.append((name[1], content.decode()))
    return found
