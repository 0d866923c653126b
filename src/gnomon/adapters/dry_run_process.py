"""Starts dry runs as processes, one at a time."""

import asyncio
import os
import sys

from gnomon.errors import TooMany, UsageError

_MODULE = "gnomon.testing.dry_run_process"
#: The variables that the process gets: none of them is a secret.
_VARIABLES = ("PATH", "PYTHONPATH", "LANG", "TZDIR", "PYTHONTZPATH")
_SECONDS = 30.0


class DryRunProcesses:
    """Implements DryRunner."""

    def __init__(self) -> None:
        self._running = False

    async def run(self, request: bytes) -> bytes:
        """See DryRunner.run."""
        if self._running:
            raise TooMany("another simulation is running", seconds=5)
        self._running = True
        try:
            return await _output(request)
        finally:
            self._running = False


async def _output(request: bytes) -> bytes:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        _MODULE,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={name: os.environ[name] for name in _VARIABLES if name in os.environ},
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(request), _SECONDS)
    except TimeoutError:
        output = b""
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if not output or process.returncode:
        raise UsageError("the simulation takes too long or too much memory: simulate fewer days or jobs")
    return output
