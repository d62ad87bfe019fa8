"""Calls that come a moment later, and come for certain.

Textual's `set_timer` does not promise that: a timer whose time has passed when its task first runs is skipped, and one
that repeats no more ends with that (`Timer._run`, textual/timer.py, 8.2). On a host that leaves this program no
processor for a few milliseconds, a short one would never be called.
"""

import asyncio
from collections.abc import Callable

from textual.message_pump import MessagePump


def call_after(pump: MessagePump, seconds: float, callback: Callable[[], object]) -> None:
    """Call `callback` among the messages of `pump` in `seconds`, or as soon as there is time then."""
    asyncio.get_running_loop().call_later(seconds, pump.call_next, callback)
