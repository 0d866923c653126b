"""Functions that tests run in processes of their own."""

import asyncio
import ctypes
import logging
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from gnomon.errors import BudgetExceeded
from gnomon.runners.context import Cancelled, Context, GiveUp, Snooze
from gnomon.runners.registry import Functions

FUNCTIONS = Functions()
_SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]


def _note(file: str, *pids: int) -> None:
    with Path(file).open("a") as notes:
        notes.write("".join(f"{pid}\n" for pid in pids))


@FUNCTIONS.function
def plain(number: int) -> dict[str, Any]:
    return {"number": number, "pid": os.getpid()}


@FUNCTIONS.function("texts.repeat")
def repeat(ctx: Context, text: str, times: int = 1) -> dict[str, str]:
    """Repeat a text.

    Longer explanations are for people.
    """
    if times < 1:
        raise ValueError(text)
    return {"text": text * times, "key": ctx.idempotency_key}


@FUNCTIONS.function
async def coroutine(ctx: Context) -> dict[str, Any]:
    await asyncio.sleep(0)
    ctx.log("from inside")
    logging.getLogger("anything").warning("a record")
    return {"attempt": ctx.attempt, "key": ctx.idempotency_key, "job": ctx.job, "left": ctx.remaining()}


@FUNCTIONS.function
def says(how: str) -> object:
    match how:
        case "raise":
            raise ValueError("no such host")
        case "snooze":
            return Snooze(2)
        case "give up":
            raise GiveUp("the account is closed")
        case "exit":
            os._exit(3)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "segfault":
            ctypes.string_at(0)
        case "system exit":
            sys.exit(3)
        case "fork":
            return "first" if os.fork() else "second"
        case _:
            return None
    return None


@FUNCTIONS.function
def environment(token: str) -> dict[str, object]:
    seen = Path("/proc/self/cmdline").read_text() + Path("/proc/self/environ").read_text()
    return {
        "shows the input": token in seen,
        "environment": {name: value for name, value in os.environ.items() if name.startswith("GNOMON_")},
        "arguments": Path("/proc/self/cmdline").read_text().split("\0"),
        "stdin": Path("/proc/self/fd/0").read_text(),
    }


@FUNCTIONS.function
def prints(what: str, times: int = 1) -> None:
    for _ in range(times):
        sys.stdout.write(what)
        sys.stderr.write(what)


@FUNCTIONS.function
def endless(size: int) -> None:
    for _ in range(size // 65536):
        os.write(1, b"x" * 65536)
    os.write(1, b"\n\xff\xfe ends\n")


@FUNCTIONS.function
def tidies(file: str) -> None:
    try:
        _note(file, os.getpid())
        time.sleep(600)
    finally:
        _note(file, 0)


@FUNCTIONS.function
async def tidies_too(ctx: Context, file: str) -> None:
    try:
        _note(file, os.getpid())
        await asyncio.sleep(600)
    finally:
        _note(file, 0 if ctx.cancelled else 1)


@FUNCTIONS.function
def saves(file: str) -> str:
    with suppress(Cancelled):
        _note(file, os.getpid())
        time.sleep(600)
    return "saved"


@FUNCTIONS.function
async def saves_too(file: str) -> str:
    _note(file, os.getpid())
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(600)
    return "saved"


@FUNCTIONS.function
def odd_texts() -> None:
    os.write(1, b"printed \0\n")
    logging.getLogger("anything").warning("logged \0 and \udcff")
    raise ValueError("raised \0 and \udcff")


def made_inside() -> None:
    """Register a function that nobody can find by its name."""

    @FUNCTIONS.function
    def local() -> None: ...


made_inside()


@FUNCTIONS.function
def traps(file: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _note(file, os.getpid())
    time.sleep(600)


def _orphan(how: str) -> int:
    script = f"import subprocess; print(subprocess.Popen({_SLEEPER!r}, stdout=subprocess.DEVNULL, {how}).pid)"
    parent = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, check=True, text=True)
    return int(parent.stdout)


@FUNCTIONS.function
def family(file: str, *, wait: bool = True, crash: bool = False) -> None:
    """One child in the group, one in a session of its own, and two without parents: one there, one without its name."""
    child = subprocess.Popen(_SLEEPER)
    stranger = subprocess.Popen(_SLEEPER, start_new_session=True)
    orphans = [_orphan("start_new_session=True"), _orphan("env={}")]
    _note(file, os.getpid(), child.pid, stranger.pid, *orphans)
    if crash:
        os.kill(os.getpid(), signal.SIGKILL)
    if wait:
        time.sleep(600)


@FUNCTIONS.function
def leaks(token: str, how: str) -> object:
    import base64
    import json
    from urllib.parse import quote

    raw = token.encode()
    forms = [token, raw.hex(), raw.hex().upper(), quote(token, safe=""), json.dumps(token)]
    forms += [base64.b64encode(b"a" * before + raw).decode() for before in range(3)]
    forms += [base64.urlsafe_b64encode(b"a" * before + raw).decode() for before in range(3)]
    if how == "raise":
        raise ValueError(" ".join(forms))
    if how == "print":
        print(*forms, sep="\n")  # noqa: T201 - what is printed is captured
        print(*forms, file=sys.stderr)  # noqa: T201 - the same
        os.write(1, raw[:5])
        os.write(1, raw[5:] + b"\n")
    if how == "log":
        for form in forms:
            logging.getLogger("leaks").warning("got %s", form)
    return {"forms": forms, token: "as a key"} if how == "return" else None


@FUNCTIONS.function
def daemonizes(file: str, how: str) -> None:
    """Start a daemon that has left parent, session and environment, and end in this way."""
    script = f"(env -i setsid sleep 600 & echo $! >> {file})"
    subprocess.run(["/bin/sh", "-c", script], check=True, env={"PATH": os.environ["PATH"]})
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)


@FUNCTIONS.function
def spends(ctx: Context, amounts: list[int]) -> int:
    """Spend these amounts of mails; return how much was refused."""
    refused = 0
    for amount in amounts:
        try:
            ctx.spend("mails", amount)
        except BudgetExceeded:
            refused += amount
    return refused


@FUNCTIONS.function
async def spends_too_much(ctx: Context) -> None:
    """Spend more than any budget has."""
    ctx.spend("mails", 2)
    ctx.spend("mails", 10**6)
