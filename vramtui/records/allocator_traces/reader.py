"""A file of allocator requests, of either kind: an event trace, or a memory snapshot of PyTorch's."""

import zlib
from pathlib import Path

from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.records.allocator_traces.memory_snapshot import read_snapshot
from vramtui.records.allocator_traces.plain_files import read_bytes
from vramtui.records.allocator_traces.trace import AllocatorTrace, read_event_trace


def read_allocator_trace(path: Path, gpu: int | None = None) -> AllocatorTrace:
    """Read an event trace or a memory snapshot.

    Args:
        path: the file.
        gpu: which device of a snapshot; without it the one with the most events.

    Raises:
        UserError: it cannot be read, or is neither, or is not whole.
    """
    name = printable(str(path))
    try:
        content = read_bytes(path)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or "it is not a whole gzip file"
        raise UserError(f"{name} cannot be read: {reason}") from None
    if content[:1] == b"\x80":
        return read_snapshot(name, content, gpu)
    if content.lstrip()[:1] != b"{":
        raise UserError(f"{name} is neither an event trace (a JSON object) nor a memory snapshot (a pickle)")
    if gpu is not None:
        raise UserError(f"{name} is an event trace, of one GPU; --gpu is for memory snapshots")
    return read_event_trace(name, content)
