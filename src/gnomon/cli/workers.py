"""`gnomon workers`: who can execute what."""

from gnomon.cli.offices import Where, in_office, say
from gnomon.cli.output import Format, print_data, print_table
from gnomon.cli.readable import moment
from gnomon.services.answering import worker_detail


def list_workers(where: Where, form: Format) -> None:
    """List the workers that are alive."""
    found = in_office(where, lambda office: office.store.workers())
    if form is not Format.TABLE:
        print_data([worker_detail(card) for card in found], form)
        return
    if not found:
        say("no worker is alive: gnomon up starts one")
        return
    rows = [
        [card.worker, card.pool, str(card.slots), moment(card.started_at), ", ".join(card.functions)] for card in found
    ]
    print_table(["worker", "pool", "slots", "since", "functions"], rows)
