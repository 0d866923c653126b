"""The cost of the policy of outputs: the check of one clean output, in processor time of this process."""

from time import process_time

import msgspec

from gnomon.core.output_policy.compiled import DEFAULT_OUTPUT_RULES, CompiledOutputPolicy, StepOutputRules
from gnomon.core.output_policy.ruling import OutputDecision
from gnomon.core.policy.document import OutputMatch, OutputRule
from gnomon.core.policy.facts import StepFacts
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


def main() -> None:
    """Measure, and write the section."""
    policies = {
        "secrets": CompiledOutputPolicy(DEFAULT_OUTPUT_RULES, 1).for_step(FACTS),
        "every scanner, a pattern and a keyword": CompiledOutputPolicy([EVERY_SCANNER], 1).for_step(FACTS),
    }
    rows = [
        [name, f"{size // 1024} KiB", f"{check_us(rules, size, times):.1f} µs"]
        for name, rules in policies.items()
        for size, times in SIZES.items()
    ]
    write_section("The policy of outputs", table(["rules", "clean output", "one check"], rows))


if __name__ == "__main__":
    main()
