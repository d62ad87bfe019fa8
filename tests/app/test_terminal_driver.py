"""The thread that waits for keys: asleep while nobody types, and ended at once."""

import os
import selectors
import threading

import pytest

from vramtui.app.terminal import terminal_driver
from vramtui.app.terminal.terminal_driver import InputEnding, InputSelector


def test_a_key_and_the_end_wake_who_waits_without_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal_driver, "QUIET", 0.0)
    ending, (keys, typist) = InputEnding(), os.pipe()
    selector = InputSelector(ending)
    selector.register(keys, selectors.EVENT_READ)
    os.write(typist, b"q")
    assert [key.fd for key, _ in selector.select(0.1)] == [keys]
    os.read(keys, 1)
    waiter = threading.Thread(target=selector.select, args=(0.1,), daemon=True)
    waiter.start()
    ending.set()
    ending.set()
    waiter.join(60)
    assert not waiter.is_alive()
    assert selector.select(0.1) == []
    ending.clear()
    assert not ending.is_set()
