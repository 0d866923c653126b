"""`gnomon workers`: who can execute what."""

from gnomon.cli.offices import Where, answer_to, say
from gnomon.cli.output import Format, print_data, print_table
from gnomon.cli.readable import moment
from gnomon.client import asks


def list_workers(where: Where, form: Format) -> None:
    """List the workers that are alive."""
    found = answer_to(where, asks.workers()).items
    if form is not Format.TABLE:
        print_data(found, form)
        return
    if not found:
        say("no worker is alive: gnomon up starts one")
        return
    rows = [[one.worker, one.pool, str(one.slots), moment(one.started_at), ", ".join(one.functions)] for one in found]
    print_table(["worker", "pool", "slots", "since", "functions"], rows)
