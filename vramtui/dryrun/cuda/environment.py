"""The environment of a job on an emulated card, what the driver reports of its processes, and the cards in use.

A command announces its card in a file that it holds locked: the kernel lets go of the lock however the command ends.
"""

import fcntl
import os
import shlex
import struct
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.file_limits import CARD_IN_USE, DRIVER_REPORT
from vramtui.core.base.text import printable
from vramtui.core.estimate.devices import Device
from vramtui.dryrun.cuda.build import DRIVER
from vramtui.models.readers.bounded import read_plain
from vramtui.probe.socket_dir import listeners_folder, private

CARD, REPORT = "VRAMTUI_CARD", "VRAMTUI_DRIVER_REPORT"
LINKS, PROGRAMS = "lib", "bin"  # folders next to the reports
# Not `-m`, which would look into the job's own folder first.
SMI = "import sys; del sys.path[0]; from vramtui.dryrun.cuda.nvidia_smi import main; main()"
MOST_DEVICES = 16
_MAGIC = 0x32445256
_HEAD = struct.Struct(f"=IIQQQ{5 * MOST_DEVICES}q{MOST_DEVICES}i")
# Variables that would choose among the machine's own cards.
_CHOOSING = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_MPS_PIPE_DIRECTORY")
# Where servers open NCCL by its file, past what is loaded already (vLLM 0.19, distributed/…/pynccl_wrapper.py).
_NCCL_PATHS = ("VLLM_NCCL_SO_PATH", "SGLANG_NCCL_SO_PATH")
SUFFIX = ".card"
MOST_CARDS = 1024  # commands of one user that run at once


class DriverReport(msgspec.Struct, frozen=True, kw_only=True):
    """The use of the simulated GPU by one process: copies of computed values to the host; of each device the most bytes
    that it held, those of its context among them, which grows with what is loaded, those of the last request for which
    there was no room then or later, and the most that all processes held together; and functions that it called and
    the driver does not model, each with the library that called it.
    """

    pid: int
    reads: int
    peaks: tuple[int, ...]
    contexts: tuple[int, ...]
    refused: tuple[int, ...] = ()
    totals: tuple[int, ...] = ()
    unmodelled: tuple[tuple[str, str], ...]


class EmulatedCard(msgspec.Struct, frozen=True, kw_only=True):
    """The card that a job finds: bytes that each process's CUDA context takes of it, and that NCCL takes for the first
    communicator of a process and for each further one.
    """

    device: Device
    multiprocessors: int
    context: int = 0
    devices: int = 1
    communicators: tuple[int, int] = (0, 0)

    @property
    def text(self) -> str:
        major, minor = self.device.capability
        name = self.device.name if self.device.name.startswith("NVIDIA") else f"NVIDIA {self.device.name}"
        numbers = (self.device.total_memory, self.multiprocessors, self.context, self.devices, *self.communicators)
        return ";".join((name.replace(";", " "), f"{major}{minor}", *map(str, numbers)))


def emulating(
    environment: Mapping[str, str], card: EmulatedCard, libraries: Path, reports: Path | None
) -> dict[str, str]:
    """`environment` in which CUDA finds the card and no other."""
    others = {key: value for key, value in environment.items() if key not in _CHOOSING}
    variables = {CARD: card.text, "TRITON_LIBCUDA_PATH": str(libraries)}
    first = {"LD_LIBRARY_PATH": libraries, "LD_PRELOAD": libraries / DRIVER}
    if reports is not None:  # where `lay_out` puts what a linker and a shell find
        variables |= {REPORT: str(reports), "TRITON_LIBCUDA_PATH": str(reports / LINKS)}
        first |= {"LIBRARY_PATH": reports / LINKS, "PATH": reports / PROGRAMS}
    paths = {name: os.pathsep.join(filter(None, (str(one), others.get(name)))) for name, one in first.items()}
    return others | variables | paths | dict.fromkeys(_NCCL_PATHS, str(libraries / DRIVER))


def lay_out(reports: Path, libraries: Path) -> None:
    """Make the parts of NVIDIA's driver besides its libraries: `libcuda.so` for linkers, and `nvidia-smi`."""
    links, programs = reports / LINKS, reports / PROGRAMS
    links.mkdir()
    programs.mkdir()
    for name in (DRIVER, "libcuda.so"):
        (links / name).symlink_to(libraries / DRIVER)
    program = programs / "nvidia-smi"
    command = shlex.join([sys.executable, "-E", "-c", SMI])
    program.write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
    program.chmod(0o700)


def read_reports(folder: Path) -> tuple[DriverReport, ...]:
    """The reports of all processes that used the card, by pid; the job can write there, so each is read with bounds."""
    reports: list[DriverReport] = []
    for path in islice(folder.glob("*.report"), DRIVER_REPORT.count):
        with suppress(UserError, struct.error):
            content = read_plain(path, DRIVER_REPORT)
            magic, pid, _started, reads, _bytes, *numbers = _HEAD.unpack_from(content)
            text = content[_HEAD.size :].split(b"\0", 1)[0].decode(errors="replace")
            calls = [line.removeprefix("unmodelled ").partition(" by ") for line in text.splitlines()]
            unmodelled = tuple((printable(name), printable(caller)) for name, _, caller in calls)
            sizes = {
                name: tuple(max(0, one) for one in numbers[at * MOST_DEVICES : (at + 1) * MOST_DEVICES])
                for at, name in enumerate(("peaks", "contexts", "refused", "totals"), 1)
            }
            if magic == _MAGIC:
                reports.append(DriverReport(pid=pid, reads=reads, unmodelled=unmodelled, **sizes))
    return tuple(sorted(reports, key=lambda report: report.pid))


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
            unfinished = path.with_suffix(".unfinished")
            unfinished.unlink(missing_ok=True)  # of a command that was killed, and had this pid
            descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # before anybody can find it
            os.write(descriptor, msgspec.json.encode(card))
            unfinished.replace(path)
    try:
        yield
    finally:
        if descriptor is not None:
            with suppress(OSError):
                path.unlink()
            os.close(descriptor)


def cards_in_use() -> tuple[CardInUse, ...]:
    """The emulated cards of this user's running commands, the latest first; what killed ones left behind is removed."""
    folder = Path(listeners_folder())
    if not private(str(folder)):
        return ()
    cards: list[tuple[float, CardInUse]] = []
    for path in islice(folder.glob(f"*{SUFFIX}"), MOST_CARDS):
        with suppress(OSError, UserError, msgspec.DecodeError):
            opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
            try:
                fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
                path.unlink()  # the lock is free
            except BlockingIOError:
                card = msgspec.json.decode(read_plain(path, CARD_IN_USE), type=CardInUse)
                cards.append((path.stat().st_mtime, card))
            finally:
                os.close(opened)
    return tuple(card for _, card in sorted(cards, key=lambda pair: -pair[0]))
