"""Keys one after another: each waits until everything that the one before it opens is mounted.

Over a slow line several keys come in one read. A key that opens an input, a list or a dialog mounts it in the
background; without this, the keys behind it would go to the former focus, and run its bindings.
"""

from collections import deque
from collections.abc import Awaitable, Callable

from textual import events
from textual.app import App
from textual.message_pump import MessagePump

from vramtui.app.terminal.textual_private import call_after

AGAIN = 0.01  # seconds between looks at whether the screen is complete
# Looks after which the next key passes although the one before is not done: a handler that waits for something must not
# block the keyboard. Not seconds: on a busy host a widget may take seconds to mount, with few looks meanwhile.
MOST_LOOKS = 300


class KeyHandled(events.InputEvent, bubble=True):
    """Follows a key on its way; when it is back at the app, every handler is done with the key."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


class KeyQueue:
    """Keys and pasted text in their order; no key waits while they come one by one.

    Args:
        app: the app, which asks `takes` about every event.
        forward: gives a key or pasted text to the present focus.
    """

    __slots__ = ("_app", "_give", "_looks", "_number", "_target", "_waiting")

    def __init__(self, app: App[None], forward: Callable[[events.Event], Awaitable[None]]) -> None:
        self._app, self._give = app, forward
        self._waiting: deque[events.InputEvent] = deque()
        self._number = 0
        self._target: MessagePump | None = None
        self._looks = 0

    async def takes(self, event: events.Event) -> bool:
        """Return whether an event is handled here: a key, pasted text, or the mark behind one. Ctrl+C never waits."""
        if isinstance(event, KeyHandled):
            if event.number == self._number:
                self._go_on(event.number)
            return True
        waits = isinstance(event, events.Paste) or (isinstance(event, events.Key) and event.key != "ctrl+c")
        if not waits or not isinstance(event, events.InputEvent) or event.is_forwarded:
            return False
        if self._target is None:
            await self._forward(event)
            return True
        if not self._waiting:
            call_after(self._app, AGAIN, self._look)
        self._waiting.append(event)
        return True

    async def _forward(self, event: events.InputEvent) -> None:
        self._number += 1
        self._looks = 0
        self._target = target = self._app.focused or self._app.screen
        await self._give(event)
        if not target.post_message(KeyHandled(self._number)):
            self._go_on(self._number)

    def _go_on(self, number: int) -> None:
        """Let the next key through as soon as the screen in front is complete."""
        if number != self._number or self._target is None:
            return
        self._looks += 1
        pumps: list[MessagePump] = [self._app.screen, *self._app.screen.walk_children()]
        is_complete = all(one._mounted_event.is_set() for one in pumps)  # noqa: SLF001 - Textual tells it in no other way
        if is_complete or self._looks > MOST_LOOKS:
            # A widget that takes the focus when mounted has asked the app for it by now: this comes behind that.
            self._app.call_later(self._next, number)
        else:
            call_after(self._app, AGAIN, lambda: self._go_on(number))

    async def _next(self, number: int) -> None:
        if number != self._number:
            return
        self._target = None
        if self._waiting:
            await self._forward(self._waiting.popleft())

    def _look(self) -> None:
        """Check that the key before is still on its way: its target may be gone, and the mark with it."""
        if not self._waiting or self._target is None:
            return
        self._looks += 1
        if not self._target.is_attached or self._looks > MOST_LOOKS:
            self._go_on(self._number)
        call_after(self._app, AGAIN, self._look)
