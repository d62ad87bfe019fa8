"""The allocator's own figures, read where CUDA is in use already and nowhere else."""

from __future__ import annotations  # Python 3.8, which a job may run under, knows no `dict[str, int]`

from typing import TYPE_CHECKING, Any

LOOK_EVERY = 1.0  # seconds between looks at devices that are not in use
PATHS: dict[str, tuple[str, ...]] = {
    "allocated": ("allocated_bytes", "all", "current"),
    "allocated_peak": ("allocated_bytes", "all", "peak"),
    "reserved": ("reserved_bytes", "all", "current"),
    "reserved_peak": ("reserved_bytes", "all", "peak"),
    "active": ("active_bytes", "all", "current"),
    "active_peak": ("active_bytes", "all", "peak"),
    "inactive_split": ("inactive_split_bytes", "all", "current"),
    "inactive_split_peak": ("inactive_split_bytes", "all", "peak"),
    "num_alloc_retries": ("num_alloc_retries",),
    "num_ooms": ("num_ooms",),
}
if TYPE_CHECKING:
    Figures = dict[str, int | None]


class Counters:
    """What `torch.cuda.memory_stats` says of each device on which this process has reserved memory."""

    def __init__(self, torch: Any) -> None:
        self._cuda: Any = getattr(torch, "cuda", None)
        self._used: tuple[int, ...] = ()
        self._checked = -1.0

    @property
    def ready(self) -> bool:
        """Whether the job has begun to use CUDA. Asking does not begin it."""
        return self._cuda is not None and bool(self._cuda.is_initialized())

    def read(self, now: float, *, every: bool = False) -> dict[int, Figures]:
        """Figures by device index.

        Devices not in use so far are looked at as well when asked to (`every`) or when that was long ago at `now`, in
        seconds.
        """
        if not self.ready:
            return {}
        if every or not self._used or now - self._checked >= LOOK_EVERY:
            self._checked = now
            all_of_them = {index: self._figures(index) for index in range(self._cuda.device_count())}
            used = {index: figures for index, figures in all_of_them.items() if figures["reserved_peak"]}
            self._used = tuple(used)
            return used
        return {index: self._figures(index) for index in self._used}

    def devices(self) -> list[dict[str, Any]]:
        """What the devices are: index, name, total memory in bytes, capability, uuid."""
        return [self._device(index) for index in range(self._cuda.device_count())] if self.ready else []

    def _device(self, index: int) -> dict[str, Any]:
        properties = self._cuda.get_device_properties(index)
        uuid = getattr(properties, "uuid", None)
        return {
            "index": index,
            "name": str(properties.name),
            "total_memory": int(properties.total_memory),
            "capability": [int(properties.major), int(properties.minor)],
            "uuid": None if uuid is None else str(uuid),
        }

    def _figures(self, index: int) -> Figures:
        # The nested form is what the flat one is made from, at a tenth of its price.
        nested = getattr(self._cuda, "memory_stats_as_nested_dict", None)
        if nested is not None:
            stats = nested(index)
            return {name: _at(stats, path) for name, path in PATHS.items()}
        stats = self._cuda.memory_stats(index)
        return {name: stats.get(".".join(path)) for name, path in PATHS.items()}


def _at(stats: Any, path: tuple[str, ...]) -> int | None:
    for key in path:
        stats = stats.get(key) if isinstance(stats, dict) else None
    return stats if isinstance(stats, int) else None
