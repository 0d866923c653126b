"""The fields of a form are read from both encodings of browsers; anything else is refused."""

import httpx
import pytest

from gnomon.errors import FieldError
from gnomon.ui.form_fields import read_form_fields

_ENCODED = "application/x-www-form-urlencoded"


def test_a_name_may_occur_several_times() -> None:
    fields = read_form_fields(_ENCODED, b"name=a%26b&name=c+d&empty=")

    assert fields.values("name") == ["a&b", "c d"]
    assert fields.as_mapping() == {"name": "c d", "empty": ""}
    assert fields.values("unknown") == []


def test_a_file_is_a_field_with_its_text() -> None:
    text = "jobs:\r\n- name: é\n--x\r\n--\r\n"
    sent = httpx.Request(
        "POST", "http://gnomon/", data={"days": "14", "tag": ""}, files={"file": ("jobs.yaml", text.encode())}
    )

    fields = read_form_fields(sent.headers["content-type"], sent.read())

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
        read_form_fields(content_type, raw)
