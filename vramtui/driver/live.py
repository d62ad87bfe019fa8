"""Emulated cards in use on this machine: announced by the command that runs a job there, found by who watches."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from vramtui.probe.socket_dir import listeners_folder, private

SUFFIX = ".card"
LARGEST = 4096  # bytes of what is announced


class CardInUse(msgspec.Struct, frozen=True, kw_only=True):
    """An emulated card that a job runs on: as the driver reads it, and where its reports and its libraries are."""

    card: str
    reports: str
    libraries: str


@contextmanager
def announced(card: CardInUse) -> Iterator[None]:
    """As long as this lasts, `cards_in_use` finds the card. Where that cannot be written down, the job runs as well."""
    path = Path(listeners_folder()) / f"{os.getpid()}{SUFFIX}"
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.encode(card))
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()


def cards_in_use() -> tuple[CardInUse, ...]:
    """The emulated cards of this user's running commands, the latest first."""
    folder = Path(listeners_folder())
    if not private(str(folder)):
        return ()
    found: list[tuple[float, CardInUse]] = []
    for path in folder.glob(f"*{SUFFIX}"):
        with suppress(OSError, ValueError, msgspec.DecodeError):
            os.kill(int(path.stem), 0)  # asks whether it exists; sends nothing
            if path.stat().st_size <= LARGEST:
                found.append((path.stat().st_mtime, msgspec.json.decode(path.read_bytes(), type=CardInUse)))
    return tuple(card for _, card in sorted(found, key=lambda pair: -pair[0]))
