"""What a process does about itself, so that nothing holds it up."""

import asyncio
import gc

from gnomon.serving import quick_collections


async def test_what_was_made_at_the_start_is_not_looked_at_again_when_garbage_is_collected() -> None:
    try:
        quick_collections(after=0)
        await asyncio.sleep(0.001)

        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
