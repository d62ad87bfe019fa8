"""The holders of GPU memory in a PyTorch memory snapshot (`torch.cuda.memory._dump_snapshot`).

A pickle may hold plain values only: any other could run code of its author when read.
"""

import gzip
import io
import pickle
import resource
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import msgspec
from msgspec import Meta, Struct

from vramtui.core.base.errors import UserError
from vramtui.core.base.file_limits import PICKLED_SPARE, PICKLED_TIMES, SNAPSHOT
from vramtui.core.base.text import printable, shortened
from vramtui.core.base.units import format_bytes
from vramtui.models.readers.bounded import open_plain

RESERVES = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
ALLOCATED, FREED_LATER = "active_allocated", "active_pending_free"
PIECE = 1 << 20
GZIP_MAGIC = b"\x1f\x8b"
MOST = 10  # lines and blocks that are shown
Size = Annotated[int, Meta(ge=0, lt=1 << 60)]


class _Frame(Struct):
    filename: str = ""
    line: int = 0
    name: str = ""


class _Entry(Struct):
    """An event of the allocator's history; `device_free` comes with a refused request."""

    action: str
    size: Size = 0
    addr: int | None = None
    device_free: int | None = None
    frames: list[_Frame] = []


class _Block(Struct):
    size: Size
    state: str
    address: int | None = None
    frames: list[_Frame] = []


class _Segment(Struct):
    address: int
    total_size: Size
    device: int = 0
    blocks: list[_Block] = []


class _Snapshot(Struct):
    segments: list[_Segment]
    device_traces: list[list[_Entry]] = []


class HeldBlocks(Struct, frozen=True):
    """Memory that one line of code allocated; `where` is empty if the snapshot has no stacks."""

    where: str
    size: int
    blocks: int


class HeldMemory(Struct, frozen=True, kw_only=True):
    """Memory of one GPU at the last refused request of a snapshot, or at its end if none was refused.

    Attributes:
        asked: bytes of the refused request.
        device_free: bytes that the GPU had free then.
        free_blocks: blocks in reserved memory that no tensor uses, the largest first; at the end of the snapshot.
        peak_allocated: over the recorded events; None without events.
        holders: by line of code, the largest first.
        largest: the largest blocks.
    """

    gpu: int
    asked: int | None
    device_free: int | None
    allocated: int
    reserved: int
    free_blocks: tuple[int, ...]
    peak_allocated: int | None
    peak_reserved: int | None
    holders: tuple[HeldBlocks, ...]
    largest: tuple[HeldBlocks, ...]

    @property
    def cause(self) -> str:
        """One sentence: fragmentation, not enough memory, or no refused request."""
        unused = format_bytes(self.reserved - self.allocated, 2)
        if self.asked is None:
            return f"No request was refused. {unused} of the reserved memory is unused."
        asked = format_bytes(self.asked, 2)
        if self.reserved - self.allocated >= self.asked:
            largest = format_bytes(max(self.free_blocks, default=0), 2)
            return (
                f"Fragmentation: {asked} were requested and {unused} of the reserved memory is unused, but the largest "
                f"free block has {largest}. Try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."
            )
        free = "an unknown amount" if self.device_free is None else format_bytes(self.device_free, 2)
        return f"Not enough memory: {asked} were requested, the GPU had {free} free, and {unused} reserved were unused."


def is_snapshot(path: Path) -> bool:
    """Return whether the file begins as a pickle, or as a gzip file, whose contents may be one."""
    try:
        with open_plain(path)[0] as file:
            return file.read(2) in {b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"\x1f\x8b"}
    except (OSError, UserError):
        return False


def read_held_memory(path: Path) -> HeldMemory:
    """Read a snapshot; of several GPUs take the one with a refused request, else the one with the most memory. Raises
    UserError if the file cannot be read, or is not a memory snapshot.
    """
    name = printable(str(path))
    try:
        content = read_bytes(path)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or "it is not a whole gzip file"
        raise UserError(f"{name} cannot be read: {reason}") from None
    return held_memory(name, content)


def held_memory(name: str, content: bytes) -> HeldMemory:
    """Read what held memory from the content of a memory snapshot; raises UserError if it is not a memory snapshot."""
    plain = load_plain(name, content)
    if isinstance(plain, list):  # PyTorch before 2.0
        plain = {"segments": plain}
    # Counted at each place: a pickle can refer to one list from a thousand places.
    segments, traces = (plain.get(key) if isinstance(plain, dict) else None for key in ("segments", "device_traces"))
    lists = [one.get("blocks") for one in segments if isinstance(one, dict)] if isinstance(segments, list) else []
    lists += traces if isinstance(traces, list) else []
    if sum(len(one) for one in lists if isinstance(one, list)) > len(content):
        raise UserError(f"{name} is not a memory snapshot: it has more entries than bytes")
    try:
        snapshot = msgspec.convert(plain, type=_Snapshot)
    except msgspec.ValidationError as error:
        what, _, place = shortened(str(error)).partition(" - at ")
        where = f"{place.strip('`').removeprefix('$.')}: " if place else ""
        raise UserError(f"{name} is not a memory snapshot: {where}{what}") from None
    except (UnicodeEncodeError, RecursionError):
        # A pickle may have a name that is not Unicode, or a list that contains itself.
        raise UserError(f"{name} is not a memory snapshot: it holds a name that is not text, or itself") from None
    events = dict(enumerate(snapshot.device_traces))
    reserved = Counter[int]()
    for segment in snapshot.segments:
        reserved[segment.device] += segment.total_size
    gpus = {*reserved, *(gpu for gpu, entries in events.items() if entries)}
    if not gpus:
        raise UserError(f"{name} holds no memory and no events")

    def weight(gpu: int) -> tuple[bool, int]:
        return any(entry.action == "oom" for entry in events.get(gpu, ())), reserved[gpu]

    gpu = max(sorted(gpus), key=weight)
    segments_of_gpu = [one for one in snapshot.segments if one.device == gpu]
    entries = events.get(gpu, [])
    live: dict[int, tuple[int, list[_Frame]]] = {}
    free = []
    for segment in segments_of_gpu:
        address = segment.address
        for block in segment.blocks:
            if block.state in {ALLOCATED, FREED_LATER}:
                live[address if block.address is None else block.address] = (block.size, block.frames)
            else:
                free.append(block.size)
            address += block.size
    allocated = sum(size for size, _ in live.values())
    total = sum(segment.total_size for segment in segments_of_gpu)
    failure, state, peaks = None, (dict(live), allocated, total), (allocated, total)
    for entry in reversed(entries):  # undo each event, from the end of the trace back to its beginning
        if entry.action == "oom" and failure is None:
            failure, state = entry, (dict(live), allocated, total)
        elif entry.action == "alloc" and entry.addr is not None:
            allocated -= live.pop(entry.addr, (entry.size, []))[0]
        elif entry.action == "free_completed" and entry.addr is not None:
            live[entry.addr] = (entry.size, entry.frames)
            allocated += entry.size
        total -= RESERVES.get(entry.action, 0) * entry.size
        peaks = max(peaks[0], allocated), max(peaks[1], total)
    live, allocated, total = state
    lines: dict[str, list[int]] = {}
    for size, frames in live.values():
        lines.setdefault(_where(frames), []).append(size)
    blocks = [HeldBlocks(_where(frames), size, 1) for size, frames in live.values()]
    holders, largest = (
        sorted(some, key=lambda one: -one.size)
        for some in ([HeldBlocks(where, sum(sizes), len(sizes)) for where, sizes in lines.items()], blocks)
    )
    return HeldMemory(
        gpu=gpu,
        asked=None if failure is None else failure.size,
        device_free=None if failure is None else failure.device_free,
        allocated=allocated,
        reserved=total,
        free_blocks=tuple(sorted(free, reverse=True)),
        peak_allocated=peaks[0] if entries else None,
        peak_reserved=peaks[1] if entries else None,
        holders=tuple(holders[:MOST]),
        largest=tuple(largest[:MOST]),
    )


def _where(frames: Sequence[_Frame]) -> str:
    """The innermost Python line outside of PyTorch, as `train.py:12 step`; empty without a Python frame."""
    python = [frame for frame in frames if frame.filename.endswith(".py")]
    own = next((frame for frame in python if "/torch/" not in frame.filename), python[0] if python else None)
    return "" if own is None else printable(f"{own.filename}:{own.line} {own.name}")


class _PlainUnpickler(pickle.Unpickler):
    """Knows no class and no function, so that only containers, numbers, strings and None can come out."""

    def __init__(self, content: bytes, name: str) -> None:
        super().__init__(io.BytesIO(content))
        self._name = name

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        asked = printable(f"{module_name}.{global_name}")
        raise UserError(
            f"{self._name} is not a plain memory snapshot: it asks for {asked}, and a pickle that does may run code; "
            "it was not read further"
        )

    def persistent_load(self, _pid: object, /) -> NoReturn:
        raise UserError(f"{self._name} is not a plain memory snapshot: it refers to objects outside of it")


def load_plain(name: str, content: bytes) -> object:
    """The plain values in a pickle, the content of the file `name`. Raises UserError if it asks for anything but plain
    values, or it is broken.
    """
    try:
        # This process may take no more memory than the values of such a pickle can need: nine bytes can ask for a memo
        # of four billion places, allocated at once.
        taken = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        wanted = taken + PICKLED_SPARE + PICKLED_TIMES * len(content)
        resource.setrlimit(resource.RLIMIT_AS, (min(limit for limit in (wanted, soft, hard) if limit >= 0), hard))
        try:
            return _PlainUnpickler(content, name).load()
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    except UserError:
        raise
    except MemoryError:
        raise UserError(f"{name} asks for more memory than a file of its size can hold") from None
    # A broken pickle can raise nearly any error, from the opcodes as from the containers they act on.
    except Exception:  # noqa: BLE001 - see above
        raise UserError(f"{name} is not a whole pickle") from None


def read_bytes(path: Path, limit: int = SNAPSHOT.size) -> bytes:
    """A file's content, decompressed where it begins as gzip does. Raises OSError, EOFError or zlib.error if it cannot
    be read or its compression is broken, UserError if it is not a plain file, holds more than `limit` bytes, or unpacks
    to many times its own size.
    """
    name = printable(str(path))
    file, size = open_plain(path, name)
    with file:
        if size > limit:
            raise UserError(f"{name} is larger than {format_bytes(limit)}, which no {SNAPSHOT.what} is")
        start = file.read(2)
        file.seek(0)
        unpacked = gzip.GzipFile(fileobj=file) if start == GZIP_MAGIC else file
        if unpacked is not file:
            limit = min(limit, SNAPSHOT.spare + (SNAPSHOT.ratio or 0) * size)
        content = bytearray()
        # Piece by piece: read at once, the memory for `limit` would be taken before the size is known.
        while len(content) <= limit and (piece := unpacked.read(min(PIECE, limit + 1 - len(content)))):
            content += piece
    if len(content) > limit:
        raise UserError(f"{name} holds more than {format_bytes(limit)}, which no {SNAPSHOT.what} of its size does")
    return bytes(content)
