"""Emulated cards in use on this machine: announced by the command that runs a job there, found by who watches.

An announcement is a file that its command holds locked. The kernel lets go of the lock however the command ends, so
that what a killed one has left behind is known, whatever process has its number since.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.file_limits import CARD_IN_USE
from vramtui.models.readers.bounded import read_plain
from vramtui.probe.socket_dir import listeners_folder, private

SUFFIX = ".card"
MOST = 1024  # commands of one user that run at once


class CardInUse(msgspec.Struct, frozen=True, kw_only=True):
    """An emulated card that a job runs on: as the driver reads it, and where its reports and its libraries are."""

    card: str
    reports: str
    libraries: str


@contextmanager
def announced(card: CardInUse) -> Iterator[None]:
    """List the card among `cards_in_use` while this lasts, if that can be written down in a private folder."""
    path = Path(listeners_folder()) / f"{os.getpid()}{SUFFIX}"
    descriptor: int | None = None
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if private(str(path.parent)):
            descriptor = _locked(path, msgspec.json.encode(card))
    try:
        yield
    finally:
        if descriptor is not None:
            with suppress(OSError):
                path.unlink()
            os.close(descriptor)


def _locked(path: Path, content: bytes) -> int:
    """The descriptor of a new file at `path`, which is locked before anybody can find it."""
    unfinished = path.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)  # of a command that was killed, and had this pid
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.write(descriptor, content)
        unfinished.replace(path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def cards_in_use() -> tuple[CardInUse, ...]:
    """The emulated cards of this user's running commands, the latest first; what killed ones left behind is removed."""
    folder = Path(listeners_folder())
    if not private(str(folder)):
        return ()
    cards: list[tuple[float, CardInUse]] = []
    for path in islice(folder.glob(f"*{SUFFIX}"), MOST):
        with suppress(OSError, UserError, msgspec.DecodeError):
            if _is_left_behind(path):
                path.unlink()
                continue
            card = msgspec.json.decode(read_plain(path, CARD_IN_USE), type=CardInUse)
            cards.append((path.stat().st_mtime, card))
    return tuple(card for _, card in sorted(cards, key=lambda pair: -pair[0]))


def _is_left_behind(path: Path) -> bool:
    """Return whether the lock of an announcement is free."""
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(opened)
    return True
