"""Renders templates to HTML: in pieces, so that a large page never holds the event loop, and compressed."""

import json
import re
import zlib
from collections.abc import Generator, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from importlib.resources import files
from secrets import token_hex
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode
from zoneinfo import ZoneInfo

from gnomon.core.durations import span_text
from gnomon.errors import NotFound
from gnomon.services.loop import ComputeQueue

if TYPE_CHECKING:
    from jinja2 import Environment, Template
    from markupsafe import Markup

_PACKAGE = "gnomon.ui"
#: Smaller answers are sent as they are.
_SMALL = 1024
_COMPRESSION = 5
#: A longer text is cut; the page says where the whole is.
MOST_TEXT = 2_000
_NONE = "\N{EN DASH}"


async def render(template: str, values: Mapping[str, Any], compute: ComputeQueue, *, part: str | None = None) -> bytes:
    """The page as UTF-8, or one part of it: the block `part_NAME` of the template. NotFound if it has none."""
    if not environment.cache_info().currsize:
        await compute.run_in_thread(environment)
    return await compute.run(_rendered(template, values, part))


def _rendered(template: str, values: Mapping[str, Any], part: str | None) -> Generator[None, None, bytes]:
    found = environment().get_template(template)
    if part is not None and f"part_{part}" not in found.blocks:
        raise NotFound("part of the page", part)
    pieces: list[str] = []
    for piece in found.generate(values) if part is None else _generate_part(found, values, part):
        pieces.append(piece)
        yield
    return "".join(pieces).encode()


def _generate_part(template: "Template", values: Mapping[str, Any], part: str) -> Iterator[str]:
    """The pieces of one block. `base.html` shows nothing then, but the template defines its macros and variables."""
    context = template.new_context({**values, "only_part": True})
    yield from template.root_render_func(context)
    yield from context.blocks[f"part_{part}"][0](context)


def compressed(page: bytes, accepted: str) -> tuple[bytes, dict[str, str]]:
    """The body of a response to a client that accepts these encodings, and its headers."""
    names = {part.partition(";")[0].strip().lower() for part in accepted.split(",")}
    if len(page) < _SMALL or "gzip" not in names:
        return page, {"vary": "accept-encoding"}
    packer = zlib.compressobj(_COMPRESSION, wbits=31)
    return packer.compress(page) + packer.flush(), {"content-encoding": "gzip", "vary": "accept-encoding"}


@cache
def environment() -> "Environment":
    """The templates. They are compiled for the first page, because few servers show one.

    All are, and in a thread: one of them takes up to twenty milliseconds, too long for the event loop.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import escape

    class FieldsFirst(Environment):
        """A field of an answer is found before the method of that name: `one.items` is what the API said."""

        def getattr(self, obj: object, attribute: str) -> Any:  # noqa: ANN401 - as in Jinja2
            if isinstance(obj, dict) and attribute in obj:
                return obj[attribute]
            return super().getattr(obj, attribute)

    made = FieldsFirst(
        loader=PackageLoader(_PACKAGE),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        {
            "moment": moment_text,
            "took": took_text,
            "pretty": pretty_text,
            "cut": cut_text,
            "exact": escape,
            "sentence": sentence_html,
            "money": money_text,
            "page_of": page_of,
            "segment": lambda text: quote(str(text), safe=""),
            "query": lambda fields: urlencode({name: value for name, value in fields.items() if value}),
        }
    )
    made.globals.update({"static": static_address, "fresh_key": lambda: token_hex(16), "only_part": False})
    made.globals["parts"] = made.get_template("parts.html").module
    for name in made.list_templates(extensions=["html"]):
        made.get_template(name)
    return made


# ---- static files --------------------------------------------------------------------------------


@cache
def static_files() -> Mapping[str, tuple[str, bytes]]:
    """The media type and content of each static file, by its address."""
    found = {}
    for name, kind in (("gnomon.css", "text/css"), ("gnomon.js", "text/javascript"), ("icon.svg", "image/svg+xml")):
        content = files(_PACKAGE).joinpath("static", name).read_bytes()
        stem, _, suffix = name.partition(".")
        found[f"{stem}.{sha256(content).hexdigest()[:12]}.{suffix}"] = (kind, content)
    return found


@cache
def static_address(name: str) -> str:
    """The address of a static file; it changes with the content."""
    stem, _, suffix = name.partition(".")
    hashed = next(one for one in static_files() if one.startswith(f"{stem}.") and one.endswith(f".{suffix}"))
    return f"/ui/static/{hashed}"


_EXPLANATION = re.compile(r"/v1/jobs/([^/]+)/why\?at=(.+)")


def page_of(href: str) -> str:
    """The page that shows what the API has at a path."""
    explanation = _EXPLANATION.fullmatch(href)
    if explanation:
        return f"/ui/why?job={explanation[1]}&at={explanation[2]}"
    return f"/ui/{href.removeprefix('/v1/')}"


# ---- texts ---------------------------------------------------------------------------------------


def moment_text(instant: str | None, zone: str = "UTC") -> str:
    """An instant of the API in words of the reader's zone, to the second."""
    if instant is None:
        return _NONE
    local = datetime.fromisoformat(instant).astimezone(UTC if zone == "UTC" else ZoneInfo(zone))
    return f"{local:%a %Y-%m-%d %H:%M:%S} {local.tzname()}"


def took_text(milliseconds: int | None) -> str:
    """A duration that stays in one line; a dash for none."""
    return _NONE if milliseconds is None else span_text(milliseconds).replace(" ", "\N{NO-BREAK SPACE}")


def money_text(amount: float) -> str:
    """An amount in the currency of the prices; small ones with more digits."""
    return f"{amount:.2f}" if amount >= 1 or amount == 0 else f"{amount:.4f}"


def pretty_text(value: object) -> str:
    """A JSON value over several lines."""
    return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=False)


def cut_text(text: str, most: int = MOST_TEXT) -> str:
    """The beginning of a text, with control characters made visible."""
    shown = _visible_text(text[:most])
    return shown if len(text) <= most else f"{shown}…"


def visible(value: object) -> object:
    """The value as pages show it: characters that no one sees, or that turn the direction of a text, are replaced.

    The filter `exact` keeps them, for a field that is sent back as it is.
    """
    return _visible_text(value) if type(value) is str and not value.isprintable() else value


def _visible_text(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else "\N{REPLACEMENT CHARACTER}" for letter in text
    )


_RUN = re.compile(r"\brun_[0-9a-f]{20,}\b")


def sentence_html(text: str) -> "Markup":
    """A sentence of `gnomon why`, word for word. Ids of executions in it are links, and shown short."""
    from markupsafe import Markup, escape

    place = Markup('<a class="id short" href="/ui/executions/{0}" title="{0}">{0}</a>')
    pieces, start = [], 0
    for found in _RUN.finditer(text):
        pieces += [escape(visible(text[start : found.start()])), place.format(found[0])]
        start = found.end()
    return Markup("").join((*pieces, escape(visible(text[start:]))))
