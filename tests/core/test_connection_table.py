"""The table of connections: limits in all and per address, and which connection makes way for a new one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.core.connection_table import ConnectionLimit, ConnectionLimits, ConnectionTable, address_group


def table(*, total: int = 4, per_address: int = 2) -> ConnectionTable[str]:
    return ConnectionTable(ConnectionLimits(total=total, per_address=per_address))


def test_one_address_has_only_its_share() -> None:
    found = table()
    for name in ("a", "b"):
        assert found.exceeded("192.0.2.1") is None
        found.add(name, "192.0.2.1")

    assert found.exceeded("192.0.2.1") is ConnectionLimit.PER_ADDRESS
    assert found.exceeded("192.0.2.2") is None


def test_all_addresses_share_the_total() -> None:
    found = table()
    for number in range(4):
        found.add(str(number), f"192.0.2.{number}")

    assert found.exceeded("192.0.2.9") is ConnectionLimit.TOTAL
    found.remove("2")
    assert found.exceeded("192.0.2.9") is None


def test_loopback_has_no_limit_of_its_own() -> None:
    found = table()
    for name in "abc":
        found.add(name, "127.0.0.1")

    assert found.exceeded("127.0.0.1") is None
    found.add("d", "::1")
    assert found.exceeded("::1") is ConnectionLimit.TOTAL


def test_the_connection_that_waits_longest_makes_way_first_and_a_busy_one_never() -> None:
    found = table()
    for name in "abc":
        found.add(name, "192.0.2.1")
    found.set_busy("a")

    assert found.longest_waiting() == "b"
    found.set_waiting("b")  # as a slow sender that lets itself be heard of now and then
    assert found.longest_waiting() == "b"
    found.set_waiting("a")
    found.remove("b")
    found.remove("c")
    assert found.longest_waiting() == "a"


def test_an_address_at_its_limit_loses_its_own_connection_only() -> None:
    found = table()
    found.add("theirs", "192.0.2.2")
    found.add("ours", "192.0.2.1")

    assert found.longest_waiting("192.0.2.1") == "ours"
    assert found.longest_waiting("192.0.2.3") is None


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.1", "192.0.2.2", False),
        ("192.0.2.1", "::ffff:192.0.2.1", True),
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("127.0.0.1", "::1", True),
        ("::ffff:127.0.0.1", "::1", True),
    ],
)
def test_a_network_of_ipv6_is_one_client(one: str, other: str, *, same: bool) -> None:
    assert (address_group(one) == address_group(other)) is same


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from(["add", "busy", "waiting", "remove"]))))
def test_the_table_counts_what_is_open_whatever_is_reported_when(reports: list[tuple[str, str]]) -> None:
    found, open_ = table(), dict[str, bool]()
    for name, report in reports:
        if report == "add" and name not in open_:
            found.add(name, "192.0.2.1")
            open_[name] = True
        elif report == "busy":
            found.set_busy(name)
            open_.update({name: False} if name in open_ else {})
        elif report == "waiting":
            found.set_waiting(name)
            open_.update({name: True} if name in open_ else {})
        elif report == "remove":
            found.remove(name)
            open_.pop(name, None)

    assert len(found) == len(open_)
    assert (found.longest_waiting() is not None) == any(open_.values())
    assert (found.exceeded("192.0.2.1") is not None) == (len(open_) >= 2)
