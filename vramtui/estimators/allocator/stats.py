"""The allocator's counters."""


class Stats:
    """Counters as PyTorch keeps them over both pools, in bytes unless said otherwise.

    Attributes:
        allocated: sizes of the blocks handed out, with what a block keeps beyond its request.
        reserved: taken from the device.
        active: handed out, or freed and still waiting for another stream.
        requested: as asked for, of the active blocks.
        inactive_split: free pieces of segments that are partly in use; expandable segments are left out.
        segments: how many pieces the device gave; expandable segments are left out.
        active_blocks: how many blocks are active.
        inactive_split_blocks: how many pieces `inactive_split` adds up.
        allocations: how many blocks are handed out.
        retries: requests for which all cached blocks were released.
        ooms: refused requests.
        device_allocs: calls that took memory from the device.
        device_frees: calls that gave memory back to it.
        peak_allocated: most of `allocated` since the peaks were last reset; so for the other peaks.
    """

    __slots__ = (
        "active",
        "active_blocks",
        "allocated",
        "allocations",
        "device_allocs",
        "device_frees",
        "inactive_split",
        "inactive_split_blocks",
        "ooms",
        "peak_active",
        "peak_allocated",
        "peak_requested",
        "peak_reserved",
        "peak_segments",
        "requested",
        "reserved",
        "retries",
        "segments",
    )

    def __init__(self) -> None:
        self.allocated = self.reserved = self.active = self.requested = self.inactive_split = 0
        self.segments = self.active_blocks = self.inactive_split_blocks = self.allocations = 0
        self.retries = self.ooms = self.device_allocs = self.device_frees = 0
        self.reset_peaks()

    def reset_peaks(self) -> None:
        """Let every peak start again from what is held now (`torch.cuda.reset_peak_memory_stats`)."""
        self.peak_allocated = self.allocated
        self.peak_active = self.active
        self.peak_requested = self.requested
        self.peak_reserved = self.reserved
        self.peak_segments = self.segments

    def handed_out(self, size: int, requested: int) -> None:
        """A block of `size` bytes serves a request of `requested` bytes."""
        self.allocations += 1
        self.active_blocks += 1
        self.allocated += size
        self.active += size
        self.requested += requested
        # No `max`: three calls at every request.
        if self.allocated > self.peak_allocated:  # noqa: PLR1730 - as said above
            self.peak_allocated = self.allocated
        if self.active > self.peak_active:  # noqa: PLR1730 - as said above
            self.peak_active = self.active
        if self.requested > self.peak_requested:  # noqa: PLR1730 - as said above
            self.peak_requested = self.requested

    def took(self, size: int, segments: int) -> None:
        """The device gave `size` bytes, as `segments` new segments."""
        self.device_allocs += 1
        self.segments += segments
        self.reserved += size
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        self.peak_segments = max(self.peak_segments, self.segments)

    def gave_back(self, size: int, segments: int) -> None:
        """The device got `size` bytes back, `segments` whole segments."""
        self.device_frees += 1
        self.segments -= segments
        self.reserved -= size

    def as_dict(self) -> dict[str, int]:
        """Every counter by name."""
        return {name: getattr(self, name) for name in self.__slots__}
