"""`gnomon doctor`: whether all is well with a database and those who work on it."""

import asyncio

import msgspec

from gnomon.cli.offices import Where
from gnomon.cli.output import Format, print_data, print_table
from gnomon.examining import examined
from gnomon.services.observability.health import Grade


def doctor(where: Where, form: Format) -> bool:
    """Print what was found. Whether nothing is wrong comes back."""
    found = asyncio.run(examined(where.settings()))
    if form is Format.TABLE:
        print_table(["about", "is", ""], [[one.about, one.grade.value, one.message] for one in found])
    else:
        print_data([msgspec.to_builtins(one) for one in found], form)
    return all(one.grade is not Grade.ERROR for one in found)
