"""Secrets: resolve `${secret:NAME}` in inputs, and redact the values in outputs, errors and logs."""

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import msgspec

from gnomon.config.secret_rules import read_secret_rules
from gnomon.config.sections import SecretsSettings
from gnomon.core.runs.secret_text import TextPart, has_places, parts_of
from gnomon.errors import FieldError
from gnomon.runners.logs import Redact, no_redaction

#: A shorter value would match everywhere, so it could not be redacted.
_SHORTEST = 4
_LARGEST_FILE = 65_536


#: Returns the content of a file, of at most so many bytes; OSError if it cannot be read, or may not be used.
ReadSecretFile = Callable[[Path, int], bytes]


def _read_any_file(path: Path, most: int) -> bytes:
    with path.open("rb") as opened:
        return opened.read(most)


class SecretSource:
    """Reads secrets from files or the environment when an attempt starts, and stores none."""

    def __init__(
        self, settings: SecretsSettings, environ: Mapping[str, str], *, read_file: ReadSecretFile = _read_any_file
    ) -> None:
        self._read_file = read_file
        self._rules = read_secret_rules(settings.allow)
        self._folder = Path(settings.folder) if settings.folder else None
        self._environ = environ

    def resolve(self, given: Mapping[str, Any], *, tenant: str, job: str) -> tuple[Mapping[str, Any], dict[str, str]]:
        """The input of a job with every place of a secret filled, and the secrets that it then holds.

        FieldError names a secret that is not allowed, missing or too short; never its value.
        """
        if not given or not has_places(given):
            return given, {}
        filling = _Filling(self, tenant, job)
        return filling.filled(given), filling.found

    def read(self, name: str, *, tenant: str, job: str) -> str:
        """The value of a secret that the job may use."""
        if not any(rule.name == name and rule.admits(tenant, job) for rule in self._rules):
            raise FieldError("secret", name, "is not allowed")
        value = self._from_file(name)
        value = self._environ.get(name) if value is None else value
        if value is None:
            raise FieldError("secret", name, "is missing")
        if not _is_unicode(value):
            raise FieldError("secret", name, "is not text: it has bytes that are not UTF-8")
        if len(value) < _SHORTEST:
            raise FieldError("secret", name, f"is shorter than {_SHORTEST} characters: it could not be kept secret")
        return value

    def _from_file(self, name: str) -> str | None:
        if self._folder is None:
            return None
        folder = self._folder.resolve()
        file = (folder / name).resolve()
        if not file.is_relative_to(folder) or not file.is_file():
            return None
        try:
            raw = self._read_file(file, _LARGEST_FILE + 1)
            text = raw.decode()
        except (OSError, UnicodeDecodeError) as error:
            # A refusal has no number. The log of the run must not show where the file is.
            refused = isinstance(error, OSError) and error.errno is None
            reason = "is refused, since others may write to its file" if refused else "cannot be read from its file"
            raise FieldError("secret", name, reason) from None
        if len(raw) > _LARGEST_FILE:
            raise FieldError("secret", name, f"is larger than {_LARGEST_FILE} bytes")
        return text.removesuffix("\n").removesuffix("\r")


def _is_unicode(value: str) -> bool:
    """False for a value of the environment that is not UTF-8: Python decodes its bytes to lone surrogates."""
    return not any("\ud800" <= letter <= "\udfff" for letter in value)


class _Filling:
    """Fills the places of one input, and notes the secrets that it used."""

    def __init__(self, source: SecretSource, tenant: str, job: str) -> None:
        self._source = source
        self._tenant, self._job = tenant, job
        self.found: dict[str, str] = {}

    def filled(self, value: Any) -> Any:  # noqa: ANN401 - any JSON
        match value:
            case str():
                return "".join(map(self._written, parts_of(value)))
            case Mapping():
                return {key: self.filled(each) for key, each in value.items()}
            case list() | tuple():
                return [self.filled(each) for each in value]
            case _:
                return value

    def _written(self, part: TextPart) -> str:
        if isinstance(part, str):
            return part
        if part.name not in self.found:
            self.found[part.name] = self._source.read(part.name, tenant=self._tenant, job=self._job)
        return self.found[part.name]


#: A shorter line of a secret would match too many texts.
_SHORTEST_LINE = 8
#: A shorter beginning or ending of a secret would match too many texts.
_SHORTEST_BEGINNING = 4


class Redactor:
    """Replaces every encoded form of each secret by its name."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        forms: dict[str, str] = {}
        for name, value in secrets.items():
            for part in _parts(value):
                forms |= dict.fromkeys(_forms(part), name)
        self._names = forms
        #: The longest first, so that no piece of a longer form is left over.
        self._longest_first = sorted(forms, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, self._longest_first)))

    def __call__(self, text: str) -> str:
        """The text without secrets."""
        return self._pattern.sub(lambda found: f"[secret {self._names[found[0]]}]", text)

    def without_endings(self, text: str) -> str:
        """The end of a text that was cut before redaction, without the ending of a secret at its beginning."""
        for form in self._longest_first:
            for length in range(min(len(form) - 1, len(text)), _SHORTEST_BEGINNING - 1, -1):
                if text.startswith(form[-length:]):
                    return f"[secret {self._names[form]}]{text[length:]}"
        return text

    def without_beginnings(self, text: str) -> str:
        """A text that was cut before redaction, without the beginning of a secret at its end."""
        for form in self._longest_first:
            for length in range(min(len(form) - 1, len(text)), _SHORTEST_BEGINNING - 1, -1):
                if text.endswith(form[:length]):
                    return f"{text[:-length]}[secret {self._names[form]}]"
        return text


def redactor(secrets: Mapping[str, str]) -> Redact:
    """A function that removes these secrets from a text."""
    return Redactor(secrets) if secrets else no_redaction


def redacted_json(written: bytes, redact: Redact) -> bytes:
    """The JSON without secrets; the result is JSON, too."""
    if redact(text := written.decode()) == text:
        return written
    cleaned = msgspec.json.encode(_cleaned(msgspec.json.decode(written), redact))
    if redact(text := cleaned.decode()) == text:
        return cleaned
    # The secret matches text across keys, values and punctuation: no part of the structure can be kept.
    return msgspec.json.encode({"redacted": True})


def _cleaned(value: Any, redact: Redact) -> Any:  # noqa: ANN401 - any JSON
    match value:
        case str():
            return redact(value)
        case dict():
            return {redact(key): _cleaned(each, redact) for key, each in value.items()}
        case list():
            return [_cleaned(each, redact) for each in value]
        case bool() | None:
            return value
        case _:
            shown = str(value)
            return value if redact(shown) == shown else redact(shown)


def _parts(value: str) -> Iterator[str]:
    yield value
    lines = value.splitlines()
    if len(lines) > 1:
        yield from (line.strip() for line in lines if len(line.strip()) >= _SHORTEST_LINE)


def _forms(value: str) -> Iterator[str]:
    raw = value.encode()
    yield value
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield ascii(value)[1:-1]
    yield repr(raw)[2:-1]
    for quoted in (quote(value, safe=""), quote(value), quote_plus(value)):
        yield quoted
        yield re.sub(r"%..", lambda escape: escape[0].lower(), quoted)
    yield raw.hex()
    yield raw.hex().upper()
    for encoded in (base64.b64encode(raw), base64.urlsafe_b64encode(raw)):
        yield encoded.decode()
    for before in range(3):
        inner = _inside_base64(raw, before)
        yield inner
        yield inner.translate(_URL_SAFE)


_URL_SAFE = str.maketrans("+/", "-_")


def _inside_base64(raw: bytes, before: int) -> str:
    """The Base64 characters of the value that do not depend on its neighbours, after `before` bytes modulo 3."""
    encoded = base64.b64encode(bytes(before) + raw).decode()
    return encoded[-(-before * 8 // 6) : (before + len(raw)) * 8 // 6]
