"""`gnomon workers`: who can execute what."""

from gnomon.cli.offices import Where, in_office, say
from gnomon.cli.output import Format, print_data, print_table
from gnomon.cli.readable import iso, moment


def list_workers(where: Where, form: Format) -> None:
    """List the workers that are alive."""
    found = in_office(where, lambda office: office.store.workers())
    if form is not Format.TABLE:
        data = [
            {
                "worker": card.worker,
                "pool": card.pool,
                "slots": card.slots,
                "started_at": iso(card.started_at),
                "functions": list(card.functions),
            }
            for card in found
        ]
        print_data(data, form)
        return
    if not found:
        say("no worker is alive: gnomon up starts one")
        return
    rows = [
        [card.worker, card.pool, str(card.slots), moment(card.started_at), ", ".join(card.functions)] for card in found
    ]
    print_table(["worker", "pool", "slots", "since", "functions"], rows)
