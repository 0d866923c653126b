"""`gnomon breakers`: list and reset circuit breakers."""

from gnomon.app.gateway import Gateway
from gnomon.cli.output import Format, format_instant, print_data, print_list, printable
from gnomon.cli.target import Target, echo, list_all, page_size, send, with_gateway
from gnomon.client import requests
from gnomon.core.responses.breakers import BreakerDefinition, BreakerDetail


def list_all_breakers(limit: int, target: Target, form: Format) -> None:
    """Print circuit breakers."""

    async def work(gateway: Gateway) -> list[BreakerDetail]:
        return await list_all(gateway, requests.breakers(page=page_size(limit)), limit)

    columns = ["breaker", "state", "failures", "open until", "opened by", "defined by"]
    print_list(with_gateway(target, work), form, columns, _row, none="no breakers")


def reset(name: str, target: Target, form: Format) -> None:
    """Close a circuit breaker."""
    after = send(target, requests.reset_breaker(name))
    if form is Format.TABLE:
        echo(f"{printable(after.name)} is closed")
    else:
        print_data(after, form)


def _row(one: BreakerDetail) -> list[str]:
    return [
        one.name,
        one.state.replace("_", " "),
        str(one.failures),
        format_instant(one.open_until, None),
        one.opened_by or "",
        "; ".join(map(_definition_text, one.definitions)),
    ]


def _definition_text(one: BreakerDefinition) -> str:
    """A definition in a few words."""
    return f"{one.user} ({one.failures} failures, {one.open}, {one.probes} probes, {one.successes} successes)"
