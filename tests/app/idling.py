"""When a dashboard under test has nothing left to do: by what its event loop has to do, not by the time that goes by.

Textual's own way is to sleep 20 ms and look at how much of that the process was on a processor, which on a busy
machine takes a process that waits for its turn for one that has finished.
"""

import asyncio
import time
from typing import Any

QUIET = 3  # turns of the loop in a row in which nobody else had anything to do
SOON = 1 / 50  # seconds; a timer due within them belongs to what is going on: a screen is drawn 60 times a second
ENOUGH = 1.0  # seconds of work, for what never ends by itself
ROUNDS = 50  # timers waited for, for those that come back as often


async def idle(min_sleep: float = SOON, max_sleep: float = ENOUGH) -> None:
    """Return when the loop is empty and no timer is due soon; after `max_sleep` seconds of work in any case."""
    del min_sleep
    loop: Any = asyncio.get_running_loop()
    until = time.thread_time() + max_sleep
    for _ in range(ROUNDS):
        quiet = 0
        while quiet < QUIET and time.thread_time() < until:
            await asyncio.sleep(0)
            quiet = 0 if loop._ready else quiet + 1
        due = min((timer.when() for timer in loop._scheduled if not timer.cancelled()), default=float("inf"))
        if due > loop.time() + SOON or time.thread_time() > until:
            return
        await asyncio.sleep(max(0.0, due - loop.time()))
