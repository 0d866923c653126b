"""The cost of the policy of outputs: the check of one clean output, and the throughput with and without checks."""

import argparse
import asyncio
from functools import partial
from time import process_time

import msgspec

from gnomon.core.output_policy.compiled import DEFAULT_OUTPUT_RULES, CompiledOutputPolicy, StepOutputRules
from gnomon.core.output_policy.ruling import OutputDecision
from gnomon.core.policy.document import OutputMatch, OutputRule
from gnomon.core.policy.facts import StepFacts
from policy import COLUMNS, Figures, compared, on_node
from report import table, write_section

ROUNDS = 7
FACTS = StepFacts(tenant="shop", job="pay", workflow="pay", step="pay", topic="pay", function="pay", kind="function")
EVERY_SCANNER = OutputRule(
    rule_id="all",
    decision=OutputDecision.QUARANTINE,
    match=OutputMatch(
        scanners=("secret", "pii", "injection"), patterns=(r"\bCUST-[0-9]{6}\b",), keywords=("internal",)
    ),
)
ROW = {"name": "ada lovelace", "at": "2026-11-19T18:15:00Z", "rows": 1763, "path": "/srv/reports/day.csv", "ok": True}
#: The size of an output, and how often it is checked in a round.
SIZES = {1024: 2000, 16_384: 400, 65_536: 200}


def output_of(size: int) -> bytes:
    """A clean output of about so many bytes."""
    return msgspec.json.encode([ROW] * (size // (len(msgspec.json.encode(ROW)) + 1)))


def check_us(rules: StepOutputRules, size: int, times: int) -> float:
    """The fastest of several rounds, in microseconds for one output."""
    output, best = output_of(size), float("inf")
    for _ in range(ROUNDS):
        since = process_time()
        for _ in range(times):
            rules.ruling(output, has_error=False, largest=size)
        best = min(best, (process_time() - since) / times)
    return best * 1e6


async def _series(kind: str, count: int, checked: bool) -> Figures:  # noqa: FBT001 - with or without
    """Runs of a function, with its outputs checked or not."""
    return await on_node(kind, count, None, **({"output_policy.enabled": True} if checked else {}))


async def main() -> None:
    """Measure, and write the section."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--count", type=int, default=6_000, help="runs of a series")
    options.add_argument("--tries", type=int, default=3, help="how often a series is repeated until it is quiet")
    chosen = options.parse_args()
    policies = {
        "secrets": CompiledOutputPolicy(DEFAULT_OUTPUT_RULES, 1).for_step(FACTS),
        "every scanner, a pattern and a keyword": CompiledOutputPolicy([EVERY_SCANNER], 1).for_step(FACTS),
    }
    rows = [
        [name, f"{size // 1024} KiB", f"{check_us(rules, size, times):.1f} µs"]
        for name, rules in policies.items()
        for size, times in SIZES.items()
    ]
    through = [
        await compared(kind, partial(_series, kind, chosen.count), chosen.tries) for kind in ("SQLite", "PostgreSQL 18")
    ]
    parts = [table(["rules", "clean output", "one check"], rows), table(COLUMNS, through)]
    write_section("The policy of outputs", "\n\n".join(parts))


if __name__ == "__main__":
    asyncio.run(main())
