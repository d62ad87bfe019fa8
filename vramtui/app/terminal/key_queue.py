"""Keys one after another: each is looked at when all that the one before it brought about is there.

Over a slow line several keys come in one read. A key that opens an input, a list or a dialog mounts it in the
background; without this, the keys behind it would go to what had the focus before, and run whatever they are bound to.
"""

from collections import deque
from collections.abc import Awaitable, Callable

from textual import events
from textual.app import App
from textual.message_pump import MessagePump

from vramtui.app.terminal.delayed_calls import call_after

AGAIN = 0.01  # seconds between looks at what is still being put together
# Looks after which the next key is let through although the one before has not been seen to the end: a handler that
# waits for something must not take the keyboard away. Not seconds: on a host whose jobs leave this program no processor
# a widget may take seconds to mount, and there are few looks meanwhile.
MOST_LOOKS = 300


class KeyHandled(events.InputEvent, bubble=True):
    """Goes the way of a key, behind it; when it is back at the app, everybody on that way is done with the key."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


class KeyQueue:
    """Keys and pasted text in the order they came; nothing is waited for while they come one by one.

    Args:
        app: whose keys they are. It asks `takes` about every event.
        forward: gives a key or pasted text to whom it belongs now.
    """

    __slots__ = ("_app", "_give", "_looks", "_number", "_target", "_waiting")

    def __init__(self, app: App[None], forward: Callable[[events.Event], Awaitable[None]]) -> None:
        self._app = app
        self._give = forward
        self._waiting: deque[events.InputEvent] = deque()
        self._number = 0
        self._target: MessagePump | None = None
        self._looks = 0

    async def takes(self, event: events.Event) -> bool:
        """Whether an event of the app's is seen to here: a key, pasted text, or the mark behind one. Ctrl+C waits for
        nothing.
        """
        if isinstance(event, KeyHandled):
            await self.handled(event.number)
            return True
        waits = isinstance(event, events.Paste) or (isinstance(event, events.Key) and event.key != "ctrl+c")
        if not waits or not isinstance(event, events.InputEvent) or event.is_forwarded:
            return False
        await self.take(event)
        return True

    async def take(self, event: events.InputEvent) -> None:
        """Forward a key, or let it wait for the one before."""
        if self._target is None:
            await self._forward(event)
            return
        if not self._waiting:
            call_after(self._app, AGAIN, self._look)
        self._waiting.append(event)

    async def handled(self, number: int) -> None:
        """The mark behind a key is back."""
        if number == self._number:
            self._go_on(number)

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
        if self._is_complete() or self._looks > MOST_LOOKS:
            # Whoever takes the focus when mounted has asked the app for it by now: this comes behind that.
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
        """See that the key before is still on its way: what had the focus may be gone, and the mark with it."""
        if not self._waiting or self._target is None:
            return
        self._looks += 1
        if not self._target.is_attached or self._looks > MOST_LOOKS:
            self._go_on(self._number)
        call_after(self._app, AGAIN, self._look)

    def _is_complete(self) -> bool:
        screen = self._app.screen
        pumps: list[MessagePump] = [screen, *screen.walk_children()]
        return all(one._mounted_event.is_set() for one in pumps)  # noqa: SLF001 - Textual tells it in no other way
