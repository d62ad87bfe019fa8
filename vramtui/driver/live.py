"""Emulated cards in use on this machine: announced by the command that runs a job there, found by who watches."""

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
    """As long as this lasts, `cards_in_use` finds the card. Where that cannot be written down, or another user could
    reach the folder, the job runs as well.
    """
    path = Path(listeners_folder()) / f"{os.getpid()}{SUFFIX}"
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if private(str(path.parent)):
            path.unlink(missing_ok=True)  # of a command that was killed, and had this pid
            path.write_bytes(msgspec.json.encode(card))
    try:
        yield
    finally:
        if private(str(path.parent)):
            with suppress(OSError):
                path.unlink()


def cards_in_use() -> tuple[CardInUse, ...]:
    """The emulated cards of this user's running commands, the latest first."""
    folder = Path(listeners_folder())
    if not private(str(folder)):
        return ()
    found: list[tuple[float, CardInUse]] = []
    for path in islice(folder.glob(f"*{SUFFIX}"), MOST):
        with suppress(OSError, ValueError, OverflowError, UserError, msgspec.DecodeError):
            os.kill(int(path.stem), 0)  # asks whether it exists; sends nothing
            card = msgspec.json.decode(read_plain(path, CARD_IN_USE), type=CardInUse)
            found.append((path.stat().st_mtime, card))
    return tuple(card for _, card in sorted(found, key=lambda pair: -pair[0]))
