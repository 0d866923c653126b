"""The settings `agents`: the providers of models, the prices of models, and what agents may cost."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from gnomon.config.sources import REDACTED, RedactedSettings, unknown_setting_reason
from gnomon.core.agents.catalog import AgentCatalog, ToolServer
from gnomon.core.agents.rules import ModelPrice
from gnomon.core.agents.spec import SERVER_PREFIX
from gnomon.core.jobs.agent_fields import MODEL, SERVER_NAME, SERVER_TOOL
from gnomon.core.model import MINUTE_MS, SECOND_MS
from gnomon.core.pings import is_http_url
from gnomon.core.runs.expressions import SECRET
from gnomon.errors import FieldError

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
MOST_PRICE = 10**6
COST_PER_DAY = (0, 10**6)
MOST_SERVER_PROGRAMS = (1, 1000)
REQUEST_TIMEOUT_MS = (10, 60 * MINUTE_MS)
_FILE = "file:"


class ProviderKind(StrEnum):
    """The protocols of providers."""

    #: Chat completions, as OpenAI and most local servers offer them.
    OPENAI = "openai"
    ANTHROPIC = "anthropic"


class ProviderSettings(RedactedSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One provider of models."""

    kind: ProviderKind
    #: The base address; empty for that of the vendor.
    url: str = ""
    #: The key, as it is, as `file:PATH` or as `${secret:NAME}`; empty for a server that wants none.
    token: str = ""


class ToolServerSettings(RedactedSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One server with tools, which speaks the Model Context Protocol: a program, or one at a URL."""

    #: The program with its arguments, which is started for each run that needs it.
    command: tuple[str, ...] = ()
    url: str = ""
    #: The token for the URL, as it is, as `file:PATH` or as `${secret:NAME}`.
    token: str = ""
    #: The variables of the program; values may be `file:PATH` or `${secret:NAME}`.
    env: dict[str, str] = msgspec.field(default_factory=dict)
    #: The folders that the program may read besides the workspace, such as that of its own files.
    folders: tuple[str, ...] = ()
    #: Whether the program may use the network, if its job may.
    network: bool = False
    #: The tools that jobs may list; empty for all.
    tools: tuple[str, ...] = ()


class AgentSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Agents: their providers and prices."""

    #: The model of agents that name none.
    model: str = ""
    providers: dict[str, ProviderSettings] = {}
    #: The prices of models for a million tokens, by `provider:name`.
    prices: dict[str, ModelPrice] = {}
    #: The servers whose tools jobs may list.
    servers: dict[str, ToolServerSettings] = {}
    #: How many programs of servers run at once on a worker.
    max_server_programs: int = 10
    #: The cost of all agents of a tenant within a day in UTC; 0 sets no limit.
    max_cost_per_day: float = 0
    #: How much of the history of its session a run gets, in tokens; about four bytes are one.
    session_tokens: int = 20_000
    #: How long a model may take to answer one request.
    request_timeout_ms: int = 2 * 60 * SECOND_MS


def read_providers(value: object) -> dict[str, ProviderSettings]:
    """The providers by name; FieldError names the first wrong field, and never shows a key."""
    found: dict[str, ProviderSettings] = {}
    for name, fields in _entries("agents.providers", value):
        path = f"agents.providers.{name}"
        if not _NAME.fullmatch(name):
            raise FieldError("agents.providers", name, "must be named with a-z, 0-9, dash and underscore")
        found[name] = fields if isinstance(fields, ProviderSettings) else _provider(path, name, fields)
    return found


def _provider(path: str, name: str, fields: object) -> ProviderSettings:
    if not isinstance(fields, Mapping):
        raise FieldError(path, REDACTED, "must be a mapping with kind, url and token")
    known = ProviderSettings.__struct_fields__
    for key in fields:
        if key not in known:
            raise FieldError(f"{path}.{key}", REDACTED, unknown_setting_reason(key, known))
    kind = fields.get("kind", name)
    if kind not in tuple(ProviderKind):
        raise FieldError(f"{path}.kind", kind, f"must be one of {', '.join(ProviderKind)}")
    url, token = fields.get("url", ""), fields.get("token", "")
    if not isinstance(url, str) or (url and not is_http_url(url)):
        raise FieldError(f"{path}.url", REDACTED, "must be an http or https URL without credentials")
    if not isinstance(token, str) or not token.isprintable():
        raise FieldError(f"{path}.token", REDACTED, "must be a text")
    if name == kind and not url and not token:
        raise FieldError(f"{path}.token", "", "is missing: the vendor wants a key, such as ${secret:NAME}")
    return ProviderSettings(kind=ProviderKind(kind), url=url, token=token)


def read_servers(value: object) -> dict[str, ToolServerSettings]:
    """The servers with tools by name; FieldError names the first wrong field, and never shows a secret."""
    found: dict[str, ToolServerSettings] = {}
    for name, fields in _entries("agents.servers", value):
        path = f"agents.servers.{name}"
        if not SERVER_NAME.fullmatch(name):
            raise FieldError("agents.servers", name, "must be named with a-z, 0-9, dash and underscore")
        found[name] = fields if isinstance(fields, ToolServerSettings) else _server(path, fields)
    return found


def _server(path: str, fields: object) -> ToolServerSettings:
    if not isinstance(fields, Mapping):
        raise FieldError(path, REDACTED, "must be a mapping with command or url")
    known = ToolServerSettings.__struct_fields__
    for key in fields:
        if key not in known:
            raise FieldError(f"{path}.{key}", REDACTED, unknown_setting_reason(key, known))
    try:
        server = msgspec.convert(dict(fields), ToolServerSettings)
    except msgspec.ValidationError as error:
        raise FieldError(path, REDACTED, f"is refused: {error}") from None
    _check_server(path, server, fields)
    return server


def _check_server(path: str, server: ToolServerSettings, given: Mapping[str, object]) -> None:
    if bool(server.command) == bool(server.url):
        raise FieldError(path, REDACTED, "must have either command or url")
    if server.url and not is_http_url(server.url):
        raise FieldError(f"{path}.url", REDACTED, "must be an http or https URL without credentials")
    kind, foreign = ("command", ("env", "folders", "network")) if server.url else ("url", ("token",))
    for key in foreign:
        if key in given:
            raise FieldError(f"{path}.{key}", REDACTED, f"is only for a server with {kind}")
    for number, folder in enumerate(server.folders):
        if not folder.startswith("/"):
            raise FieldError(f"{path}.folders[{number}]", folder, "must be an absolute path")
    for number, tool in enumerate(server.tools):
        if not SERVER_TOOL.fullmatch(f"{SERVER_PREFIX}x/{tool}"):
            raise FieldError(f"{path}.tools[{number}]", tool, "is no name of a tool")


def read_prices(value: object) -> dict[str, ModelPrice]:
    """The prices by model; FieldError names the first wrong one."""
    found: dict[str, ModelPrice] = {}
    for model, price in _entries("agents.prices", value):
        path = f"agents.prices.{model}"
        if not MODEL.fullmatch(model):
            raise FieldError("agents.prices", model, "must be named provider:name")
        try:
            found[model] = msgspec.convert(price, ModelPrice, from_attributes=True)
        except msgspec.ValidationError as error:
            raise FieldError(path, price, f"must have input and output: {error}") from None
        for name in ModelPrice.__struct_fields__:
            if not 0 <= (amount := getattr(found[model], name)) <= MOST_PRICE:
                raise FieldError(f"{path}.{name}", amount, f"must be from 0 to {MOST_PRICE}")
    return found


def _entries(field: str, value: object) -> list[tuple[str, Any]]:
    if value is None:
        return []
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise FieldError(field, REDACTED, "must be a mapping by name")
    return list(value.items())


def check_agents(agents: AgentSettings) -> None:
    """Raise FieldError for a setting that could never mean what it says."""
    if agents.model and not MODEL.fullmatch(agents.model):
        raise FieldError("agents.model", agents.model, "must be provider:name, such as openai:gpt-5-mini")


def agent_catalog(agents: AgentSettings, *, actions_per_hour: int | None = None) -> AgentCatalog:
    """The models as the check of jobs sees them, and how many actions of agents may count within an hour."""
    return AgentCatalog(
        actions_per_hour=actions_per_hour,
        default_model=agents.model,
        providers=frozenset(agents.providers),
        priced=frozenset(agents.prices),
        has_daily_limit=agents.max_cost_per_day > 0,
        servers={name: _as_seen(server) for name, server in agents.servers.items()},
    )


def _as_seen(server: ToolServerSettings) -> ToolServer:
    return ToolServer(host=urlsplit(server.url).hostname or "", tools=frozenset(server.tools))


def provider_as_shown(provider: ProviderSettings) -> dict[str, object]:
    """The fields of the provider that have a value, without its key."""
    shown: dict[str, object] = {"kind": provider.kind.value}
    if provider.url:
        shown["url"] = _shown_url(provider.url)
    if provider.token:
        named = provider.token.startswith(_FILE) or SECRET.fullmatch(provider.token)
        shown["token"] = provider.token if named else repr(REDACTED)
    return shown


def server_as_shown(server: ToolServerSettings) -> dict[str, object]:
    """The fields of the server that have a value, without its token and the values of its variables."""
    shown: dict[str, object] = {}
    for key in ("command", "folders", "tools", "network"):
        if value := getattr(server, key):
            shown[key] = list(value) if isinstance(value, tuple) else value
    if server.url:
        shown["url"] = _shown_url(server.url)
    secrets = {"token": server.token, **{f"env.{name}": value for name, value in server.env.items()}}
    for key, value in secrets.items():
        if value:
            shown[key] = value if value.startswith(_FILE) or SECRET.fullmatch(value) else repr(REDACTED)
    return shown


def _shown_url(url: str) -> str:
    """The address without its query, which may hold a key."""
    address, mark, _ = url.partition("?")
    return f"{address}{mark}{REDACTED!r}" if mark else address
