"""Functions that behave badly."""

import base64
import json
import logging
import time
from urllib.parse import quote

import gnomon


@gnomon.function("leaky")
async def logs_its_secret(ctx: gnomon.Context, token: str) -> None:
    """Logs, prints and returns its secret in every way, and fails with it."""
    raw = token.encode()
    forms = [
        token,
        raw.hex(),
        raw.hex().upper(),
        base64.b64encode(raw).decode(),
        base64.b64encode(b"Bearer " + raw).decode(),
        base64.urlsafe_b64encode(raw).decode(),
        quote(token),
        quote(token, safe=""),
        json.dumps(token),
        json.dumps(token, ensure_ascii=False),
    ]
    for form in forms:
        ctx.log(f"token={form}")
        logging.getLogger("leaky").warning("token=%s", form)
        print(form)  # noqa: T201 - a process captures it
    raise RuntimeError(" ".join(forms))


@gnomon.function("blocking")
async def blocks_the_loop() -> None:
    """Blocks the loop that it runs on."""
    time.sleep(60)  # noqa: ASYNC251 - on purpose
