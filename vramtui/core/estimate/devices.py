"""The cards that are known by name, and what an estimate needs to know of a card."""

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from vramtui.core.base.errors import UserError, nearest
from vramtui.core.base.units import asked_size, is_size
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import InferRun, ServeRun, TrainRun, Workload


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A card as an estimator sees it.

    Attributes:
        name: the short name people use.
        capability: CUDA compute capability (major, minor).
        total_memory: bytes, as `torch.cuda.get_device_properties(0).total_memory` has it; for cards that were not
            read off, nvidia-smi's figure less what cards are seen to hold back. Of GB10 and Jetson, what unified
            memory lets a process have.
    """

    name: str
    capability: tuple[int, int]
    total_memory: int

    @property
    def vendor(self) -> str:
        return vendor_of(self.name)


def vendor_of(name: str) -> str:
    """Whose card it is by its name: what reads AMD's cards calls them `AMD …`."""
    return "AMD" if name.startswith("AMD ") else "NVIDIA"


# AMD's, Intel's and Apple's cards, by how their names begin once they are plain.
_OTHER_MAKERS = r"(?:amd)?(?:instinct)?mi\d{2,3}|amd|radeon|rx\d|wx\d|(?:intel)?(?:gaudi|arc)|m\d(?:pro|max|ultra)"
# Of its memory a card keeps about so much from programs, fitted to those of the table that were seen: MiB, and a share.
HELD_BACK, HELD_BACK_SHARE = 180, 0.007


def _table() -> Iterator[tuple[Device, str, list[str]]]:
    """Each card of `cards.csv` with its number of multiprocessors and its other names.

    Memory is `B` as read off, `GiB` as posted by people (PyTorch's "total capacity of 23.64 GiB"), or `MiB` if only
    nvidia-smi's memory column is known.
    """
    for line in Path(__file__).with_name("cards.csv").read_text(encoding="utf-8").splitlines()[1:]:
        name, capability, memory, multiprocessors, aliases = line.split(",")
        major, minor = capability.split(".")
        number, unit = memory.split(" ")
        if unit == "MiB":
            total = (int(number) - HELD_BACK - round(int(number) * HELD_BACK_SHARE)) << 20
        else:
            total = int(number) if unit == "B" else int(float(number) * 2**30)
        device = Device(name=name, capability=(int(major), int(minor)), total_memory=total)
        yield device, multiprocessors, aliases.split(";") if aliases else []


_TABLE = tuple(_table())
CARDS: dict[str, Device] = {device.name: device for device, _, _ in _TABLE}
# The GPUs that tables compare; laptops and converted GPUs are known by name only.
COMPARED = tuple(device for device in CARDS.values() if not re.search("Laptop|4090-48GB", device.name))
ALIASES = {alias: device.name for device, _, aliases in _TABLE for alias in aliases}
# Streaming multiprocessors, of the cards for which the table has a count.
MULTIPROCESSORS = {device.name: int(count) for device, count, _ in _TABLE if count}
DEFAULT_CARD = "H100"
CardGroup = Literal["data centre", "workstation", "consumer", "desk and embedded"]
CARD_GROUPS: tuple[CardGroup, ...] = get_args(CardGroup)
# Whole small computers; RTX for workstations (formerly Quadro); GeForce and Titan. All others are for servers.
_GROUPS: tuple[tuple[str, CardGroup], ...] = (
    (r"GB10$|Jetson", "desk and embedded"),
    (r"RTX[68]000$|A[2456][05]00$|.*Ada$|RTXPRO", "workstation"),
    (r"GTX|RTX|Titan", "consumer"),
)
# What nvidia-smi's names hold besides the card's own.
_BESIDE = (
    "nvidia", "geforce", "tesla", "quadro", "generation", "nvgpu", "gpu", "blackwell", "workstation", "server",
    "edition", "sxm2", "sxm4", "sxm5", "pcie", "hbm3e", "hbm3",
)  # fmt: skip


_SIZED = r"-\d+GB$"


def card(name: str) -> Device:
    """The card called `name`, whatever its spelling in case, spaces and dashes. Raises UserError if no such card is
    known; the sentence names the nearest one.
    """
    names = {_plain(known): CARDS[ALIASES.get(known, known)] for known in (*CARDS, *ALIASES)}

    def find(plain: str) -> Device | None:
        # People call consumer cards only by their number: 4090 is RTX4090, 1080ti is GTX1080Ti.
        return names.get(plain) or names.get(f"rtx{plain}") or names.get(f"gtx{plain}")

    plain, sized = _plain(name), re.fullmatch(r"(.*\D)(\d+) ?GB", name, re.IGNORECASE)
    device = find(plain)
    if device is None and sized and (alone := find(_plain(sized[1]))):  # RTX 3060 12GB, the memory behind its only name
        device = alone if abs(alone.total_memory / 2**30 - int(sized[2])) < int(sized[2]) / 12 else None
    if device is None:
        if re.match(_OTHER_MAKERS, plain):
            raise UserError(
                f"{name!r} is not an NVIDIA GPU, and estimates know only CUDA; --memory takes any GPU's size"
            )
        if is_size(name):
            raise UserError(f"{name!r} is a size, not a card: --memory {name} takes any card of that size")
        if plain.isdigit() and len(plain) <= 3:
            raise UserError(f"no card called {name!r} is known; a card of that much memory is {plain}GB")
        guess = nearest(name, (*CARDS, *ALIASES)) or nearest(f"RTX{plain}", (*CARDS, *ALIASES))
        some = ", ".join(list(CARDS)[-6:])
        raise UserError(f"no card called {name!r} is known{guess}; give its memory instead, or a name such as {some}")
    return device


def sizes_of(name: str) -> tuple[Device, ...]:
    """The GPUs of a name that exists with several memory sizes and states none; empty for any other name."""
    try:
        base = re.sub(_SIZED, "", card(name).name)
    except UserError:
        return ()
    if base == "RTX6000" and "quadro" not in name.lower():  # three generations bear the name
        return tuple(device for device in COMPARED if device.name in {"RTX6000", "RTX6000Ada", "RTXPRO6000"})
    same = tuple(device for device in COMPARED if re.sub(_SIZED, "", device.name) == base)
    return same if len(same) > 1 and _plain(base).removeprefix("rtx") == _plain(name).removeprefix("rtx") else ()


def size_note(gpu: str | None, device: Device) -> str:
    """Which of its sizes is taken of a name that exists with several and states none; nothing for any other."""
    sizes = ", ".join(one.name for one in sizes_of(gpu or ""))
    return f"{gpu} is {sizes}: this is {device.name}" if sizes else ""


def chosen_device(gpu: str | None, memory: str | None) -> Device:
    """The card of that name, with the memory that is asked for; a size instead of a name is that memory.

    Args:
        gpu: a name or a size; the usual card where it is neither.
        memory: a size; the card's own without one.

    Raises:
        UserError: the card is not known or the size is none.
    """
    if gpu is not None and memory is None and is_size(gpu):
        gpu, memory = None, gpu
    device = card(gpu or DEFAULT_CARD)
    if memory is None:
        return device
    size = asked_size(memory)
    if size <= 0:
        raise UserError(f"--memory {memory} leaves no memory")
    name = f"{device.name if gpu else 'a card'} of {memory}"
    return msgspec.structs.replace(device, name=name, total_memory=size)


def group_of(name: str) -> CardGroup:
    return next((group for pattern, group in _GROUPS if re.match(pattern, name)), "data centre")


def _plain(name: str) -> str:
    plain = "".join(letter for letter in name.lower() if letter.isalnum())
    for word in _BESIDE:
        plain = plain.replace(word, "")
    return plain.removesuffix("gb")


# check_fp8_support, below which its autocast raises: "Device compute capability 8.9 or higher required".
FP8 = (8, 9)
FP8_SOURCE = "Transformer Engine 2, transformer_engine/pytorch/quantization.py: check_fp8_support"
# GPUTooOldForTriton: "Triton only supports devices of CUDA Capability >= 7.0".
TRITON = (7, 0)
TRITON_SOURCE = "PyTorch 2.13, torch/_dynamo/device_interface.py: CudaInterface.is_triton_capable"
# is_bf16_supported(including_emulation=False); with emulation, the default, it is True on every card.
BF16 = (8, 0)
BF16_SOURCE = "PyTorch 2.13, torch/cuda/__init__.py: is_bf16_supported"


class CannotStartError(UserError):
    """The job ends before it takes any memory worth estimating, whatever the card holds.

    `longest` is the longest sequence with which a server starts; None if it is not known, or none would do.
    """

    exit_code = 1  # it is an answer: no
    longest: int | None = None


def check_card(workload: Workload, device: Device) -> None:
    """See that the card can do what the run asks of it. Raises CannotStartError if it cannot, and no other kernel is
    taken instead; the sentence names the key, and in which source file the job would end.
    """
    run = workload.run
    asked, least, source = "", (0, 0), ""
    if run.precision == "fp8-mixed":
        asked, least, source = "run.precision = 'fp8-mixed'", FP8, FP8_SOURCE
    elif isinstance(run, TrainRun) and run.compile:
        asked, least, source = "run.compile = true", TRITON, TRITON_SOURCE
    if device.capability < least:
        raise CannotStartError(
            f"does not start on {device.name}: {asked} needs compute capability {_dotted(least)}, and it has "
            f"{_dotted(device.capability)} ({source})"
        )


@lru_cache(1024)  # the same one again for the processes of one job
def on_card(preset_file: PresetFile, device: Device) -> PresetFile:
    """The preset in fp16 where nothing says its precision, its own file neither, and the card has no bf16."""
    run, in_file = preset_file.preset.run, preset_file.path.endswith(".toml")
    words = (*preset_file.settings, *(one.key for one in preset_file.known))
    stated = any(re.search("precision|[bft][fp](16|32)", word) for word in words)
    if in_file or stated or isinstance(run, ServeRun) or device.capability >= BF16 or "bf16" not in run.precision:
        return preset_file
    half: Any = run.precision.replace("bf16", "fp16")
    notes = f"{preset_file.preset.notes} In {half}, as {device.name} has no bf16.".strip()
    return preset_file.changed(run=msgspec.structs.replace(run, precision=half), notes=notes)


def emulation_note(workload: Workload, device: Device) -> str:
    """A note on what PyTorch emulates on this card, without a full stop; may be empty."""
    run = workload.run
    if not isinstance(run, (TrainRun, InferRun)) or device.capability >= BF16 or not run.precision.startswith("bf16"):
        return ""
    return (
        f"bf16 is emulated below compute capability {_dotted(BF16)}: it runs, slowly, and a number takes two bytes "
        f"as elsewhere ({BF16_SOURCE})"
    )


def _dotted(capability: tuple[int, int]) -> str:
    return ".".join(map(str, capability))
