"""The samples of a recording, of which only some are held ready: a day of a crowded host would take gigabytes.

They are kept in blocks as they stand in the file, each beginning with a sample that stands by itself. The blocks used
last are held decoded; others are compressed, and decoded again when somebody asks.
"""

import threading
import zlib
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from typing import overload

import msgspec

from vramtui.core.base.compatibility import with_possible_fields
from vramtui.core.observation.bounded_samples import bounded
from vramtui.core.observation.readings import Sample, decode_sample
from vramtui.records.recording.deltas import DeltaLine, following

BLOCK = 30  # samples at least; a whole one comes once a minute
READY = 120  # blocks held decoded: two hours with a sample each second
MOST_MENDED = 8 << 20  # bytes of a line; 16 cards with 1,024 processes are 6 MB
OF_MORE = 30  # held decoded where there are more than that


def is_whole(line: bytes) -> bool:
    """Whether the line of a recording is a sample that stands by itself."""
    return not line.startswith(b'{"delta":')


def sample_in(line: bytes, before: Sample | None) -> Sample:
    """The sample that a line of a recording tells, after the one before it; without what no host has. A figure that
    cannot be one hides itself and no more, and a problem of the sample names it.

    Raises:
        msgspec.DecodeError: it is none, or does not follow (which UnicodeDecodeError also tells).
    """
    left_out: list[str] = []
    if is_whole(line):
        return bounded(_whole(line, left_out), left_out=left_out)
    if before is None:
        raise msgspec.ValidationError("it says what changed, and there is no sample before it")
    return bounded(following(before, msgspec.json.decode(line, type=DeltaLine).delta, left_out), before, left_out)


def _whole(line: bytes, left_out: list[str]) -> Sample:
    try:
        return decode_sample(line)
    except msgspec.ValidationError:
        rows = ("gpus", "processes")
        sample = with_possible_fields(line, Sample, rows, left_out) if len(line) <= MOST_MENDED else None
        if sample is None:
            raise
        return sample


class Samples(Sequence[Sample]):
    """Samples by number. They are added in the order of the file, and read in that of their times.

    One thread may add while another reads; `sort` is for when all are there.

    Attributes:
        times: when each was taken, in seconds since the epoch.
    """

    def __init__(self) -> None:
        self.times = array("d")
        self.last: Sample | None = None
        self._starts: list[int] = []
        self._blocks: list[list[bytes] | bytes] = []
        self._ready: OrderedDict[int, list[Sample]] = OrderedDict()
        self._order: Sequence[int] | None = None
        self._alone = threading.Lock()

    def add(self, line: bytes, sample: Sample) -> None:
        """Take the next line, which tells `sample`."""
        with self._alone:
            self._add(line, sample)

    def _add(self, line: bytes, sample: Sample) -> None:
        if not self._starts or (is_whole(line) and len(self.times) - self._starts[-1] >= BLOCK):
            self._starts.append(len(self.times))
            self._blocks.append([])
            self._ready[len(self._blocks) - 1] = []
            self._make_room()
        block = self._blocks[-1]
        assert isinstance(block, list), "the last block is never put away while it grows"
        block.append(line)
        self._ready[len(self._blocks) - 1].append(sample)
        self.times.append(sample.taken_at)
        self.last = sample

    def sort(self) -> bool:
        """Put them in the order of their times; False where they were in it."""
        if all(one <= other for one, other in zip(self.times, self.times[1:], strict=False)):
            return False
        self._order = sorted(range(len(self.times)), key=self.times.__getitem__)
        # In place: whoever reads along has them already.
        self.times[:] = array("d", sorted(self.times))
        return True

    def in_hand(self) -> "Sequence[Sample]":
        """All of them in a tuple, where they are few enough; or else these."""
        return tuple(self) if len(self._blocks) <= READY else self

    def __len__(self) -> int:
        return len(self.times)

    @overload
    def __getitem__(self, place: int) -> Sample: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Sample]: ...
    def __getitem__(self, place: int | slice) -> "Sample | Sequence[Sample]":
        if isinstance(place, slice):
            return tuple(self[number] for number in range(*place.indices(len(self))))
        number = range(len(self))[place]
        if self._order is not None:
            number = self._order[number]
        with self._alone:
            block = bisect_right(self._starts, number) - 1
            return self._samples_of(block)[number - self._starts[block]]

    def _samples_of(self, block: int) -> list[Sample]:
        known = self._ready.get(block)
        if known is not None:
            self._ready.move_to_end(block)
            return known
        stored = self._blocks[block]
        lines = zlib.decompress(stored).split(b"\n") if isinstance(stored, bytes) else stored
        samples: list[Sample] = []
        for line in lines:
            samples.append(sample_in(line, samples[-1] if samples else None))
        self._ready[block] = samples
        self._make_room()
        return samples

    def _make_room(self) -> None:
        while len(self._ready) > (READY if len(self._blocks) <= READY else OF_MORE):
            block, _ = self._ready.popitem(last=False)
            stored = self._blocks[block]
            if isinstance(stored, list):
                self._blocks[block] = zlib.compress(b"\n".join(stored), 1)
