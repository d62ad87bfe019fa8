"""What a trace came to: the figures that different settings are compared by."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from vramtui.estimators.allocator.replay import COLUMNS, AllocatorReplay


@dataclass(frozen=True)
class AllocatorFigures:
    """Bytes and counts at the end of a trace, and its peaks; None where they are not known.

    Attributes:
        fragmentation: the share of what was reserved that no block used, when most was reserved for the first time.
        unused_at_peak: the bytes of that share.
        retries: requests for which all cached blocks were released.
        ooms: refused requests.
    """

    peak_allocated: int | None = None
    peak_reserved: int | None = None
    allocated: int | None = None
    reserved: int | None = None
    active: int | None = None
    requested: int | None = None
    inactive_split: int | None = None
    segments: int | None = None
    retries: int | None = None
    ooms: int | None = None
    fragmentation: float | None = None
    unused_at_peak: int | None = None

    def as_dict(self) -> dict[str, int | float | None]:
        """Every figure by name."""
        return asdict(self)


def simulated(result: AllocatorReplay) -> AllocatorFigures:
    """The figures of a replay."""
    stats, peak = result.allocator.stats, result.peak
    return AllocatorFigures(
        peak_allocated=stats.peak_allocated,
        peak_reserved=stats.peak_reserved,
        allocated=stats.allocated,
        reserved=stats.reserved,
        active=stats.active,
        requested=stats.requested,
        inactive_split=stats.inactive_split,
        segments=stats.segments,
        retries=stats.retries,
        ooms=stats.ooms,
        fragmentation=peak.fragmentation,
        unused_at_peak=peak.reserved - peak.allocated,
    )


def from_rows(rows: Sequence[Sequence[int]]) -> AllocatorFigures:
    """The figures of counters recorded after every event, in the order of `COLUMNS`; at least one row."""
    column = {name: number for number, name in enumerate(COLUMNS)}
    last = {name: rows[-1][number] for name, number in column.items()}
    reserved, allocated = column["reserved"], column["allocated"]
    top = max(rows, key=lambda row: row[reserved])
    unused = top[reserved] - top[allocated]
    return AllocatorFigures(
        peak_allocated=last["peak_allocated"],
        peak_reserved=last["peak_reserved"],
        allocated=last["allocated"],
        reserved=last["reserved"],
        active=last["active"],
        requested=last["requested"],
        inactive_split=last["inactive_split"],
        segments=last["segments"],
        retries=last["retries"],
        ooms=sum(row[column["oom"]] for row in rows),
        fragmentation=unused / top[reserved] if top[reserved] else 0.0,
        unused_at_peak=unused,
    )
