"""Memory and processor time of an idle `gnomon up`, with many jobs registered and nothing due."""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter, sleep

from report import table, write_section


def idle(jobs: int, seconds: float) -> tuple[float, float, float]:
    """Seconds until it is up, its memory in MiB and its share of one core in percent."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "jobs.yaml")
        lines = [f"  - {{name: job-{n}, function: f, schedule: '0 3 29 2 *'}}" for n in range(jobs)]
        file.write_text("jobs:\n" + "\n".join(lines) + "\n")
        command = [sys.executable, "-m", "gnomon", "up", "--database", f"{folder}/gnomon.db", "--jobs", str(file)]
        command += ["--port", "0"]
        began = perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own program
        try:
            assert process.stdout is not None
            while "scheduling on" not in process.stdout.readline():
                assert process.poll() is None
            up_in = perf_counter() - began
            sleep(3)
            before = _cpu_seconds(process.pid)
            sleep(seconds)
            share = (_cpu_seconds(process.pid) - before) / seconds * 100
            return up_in, _memory(process.pid), share
        finally:
            process.terminate()
            process.communicate()


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    [resident] = [line for line in lines if line.startswith("VmRSS")]
    return int(resident.split()[1]) / 1024


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=20)
    chosen = options.parse_args()
    rows = []
    for jobs in (1_000, 10_000):
        up_in, memory, share = idle(jobs, chosen.seconds)
        rows.append([f"{jobs:,}", f"{up_in:.1f} s", f"{memory:.0f} MiB", f"{share:.2f} %"])
    body = table(["jobs", "from the command to scheduling, file read and applied", "memory", "of one core"], rows)
    write_section("Footprint: an idle `gnomon up`", body)


if __name__ == "__main__":
    main()
