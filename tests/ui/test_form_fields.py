"""The fields of a form are read from both encodings of browsers; anything else is refused."""

import random
from urllib.parse import parse_qsl, urlencode

import httpx
import pytest

from gnomon.errors import FieldError
from gnomon.ui.form_fields import FormFields, read_form_fields

_ENCODED = "application/x-www-form-urlencoded"


def fields_of(content_type: str, raw: bytes) -> FormFields:
    """The fields, read at once."""
    reading = read_form_fields(content_type, raw)
    while True:
        try:
            next(reading)
        except StopIteration as finished:
            found: FormFields = finished.value
            return found


def test_a_name_may_occur_several_times() -> None:
    fields = fields_of(_ENCODED, b"name=a%26b&name=c+d&empty=")

    assert fields.values("name") == ["a&b", "c d"]
    assert fields.as_mapping() == {"name": "c d", "empty": ""}
    assert fields.values("unknown") == []


@pytest.mark.parametrize("seed", range(20))
def test_a_long_field_is_read_as_if_it_were_one_piece(seed: int) -> None:
    dice = random.Random(seed)
    texts = ["".join(dice.choices("aä€😀%&=+ 4\n", k=dice.choice([0, 3, 8_190, 30_000]))) for _ in range(3)]
    raw = urlencode([(f"n{number}%", text) for number, text in enumerate(texts)])
    # Not everything that begins like an escape is one.
    raw += "&odd=" + "".join(dice.choices("%4zG+", k=20_000))

    read = fields_of(_ENCODED, raw.encode())

    assert list(read.pairs) == parse_qsl(raw, keep_blank_values=True)


def test_a_large_form_is_read_in_short_steps() -> None:
    reading = read_form_fields(_ENCODED, b"body=" + b"%41" * 100_000)

    assert sum(1 for _ in reading) > 30


def test_a_file_is_a_field_with_its_text() -> None:
    text = "jobs:\r\n- name: é\n--x\r\n--\r\n"
    sent = httpx.Request(
        "POST", "http://gnomon/", data={"days": "14", "tag": ""}, files={"file": ("jobs.yaml", text.encode())}
    )

    fields = fields_of(sent.headers["content-type"], sent.read())

    assert dict(fields.pairs) == {"days": "14", "tag": "", "file": text}


@pytest.mark.parametrize(
    ("content_type", "raw"),
    [
        (_ENCODED, b"\xff"),
        (_ENCODED, b"&".join(b"a%d=1" % number for number in range(201))),
        ("multipart/form-data", b"--x\r\n\r\n--x--"),
        ("multipart/form-data; boundary=x", b""),
        ("multipart/form-data; boundary=x", b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\nhalf'),
        ("multipart/form-data; boundary=x", b"--x\r\nContent-Disposition: form-data\r\n\r\n1\r\n--x--"),
        ("multipart/form-data; boundary=x", b'--x\r\nname="a"\r\n--x--'),
        ("multipart/form-data; boundary=x", b'--x\r\nname="a"\r\n\r\n\xff\r\n--x--'),
        ("multipart/form-data; boundary=x", b'--x\r\nname="a"\r\n\r\n1\r\n' * 300 + b"--x--"),
    ],
)
def test_a_body_that_is_no_form_is_refused(content_type: str, raw: bytes) -> None:
    with pytest.raises(FieldError, match="is not a form"):
        fields_of(content_type, raw)
