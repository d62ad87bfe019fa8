"""`observe`, `sample` and `watch`: the memory of a training loop, and of every GPU now."""

import importlib.util
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager, suppress

from vramtui import probe
from vramtui.api.estimation import JobEstimate, require_text
from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.core.base.units import format_bytes
from vramtui.core.estimate.estimate import Ledger
from vramtui.core.estimate.fits import Comparison, compare
from vramtui.core.observation.probe_messages import ObservedJob
from vramtui.core.observation.readings import Sample, Source
from vramtui.sources.probe_listener import ProbeListener

LAST_BEAT = 1.0  # seconds for the probe's last message; it sends one every 0.4


class ObservedRun:
    """PyTorch's memory while a block ran; complete once the block has ended.

    Attributes:
        predicted: the estimate to compare with, or None.
        job: the probe's reports; None before the first.
        process: bytes that the driver showed for this process at the end; None if no driver answers.
    """

    def __init__(self, predicted: JobEstimate | None) -> None:
        self.predicted = predicted
        self.job: ObservedJob | None = None
        self.process: int | None = None

    @property
    def device(self) -> int | None:
        """The index of the GPU on which most was held, or None."""
        peaks = {} if self.job is None else self.job.peaks
        return max(peaks, key=lambda index: peaks[index].reserved_peak or 0, default=None)

    @property
    def ledger(self) -> Ledger | None:
        """The known parts and the peaks of the allocator's totals in bytes; None if CUDA was not used."""
        return None if self.job is None or self.device is None else self.job.ledger(self.device)

    def __repr__(self) -> str:
        """The peaks of the totals."""
        ledger = self.ledger
        if ledger is None:
            return "<ObservedRun: no CUDA seen>"
        sizes = f"allocated {format_bytes(ledger.allocated)}, reserved {format_bytes(ledger.reserved)}"
        return f"<ObservedRun: {sizes}, process {format_bytes(self.process)}>"

    @property
    def comparison(self) -> Comparison | None:
        """Predicted and observed, line by line; None without a prediction or if CUDA was not used."""
        if self.predicted is None or self.ledger is None:
            return None
        return compare(self.predicted.preset.key, self.predicted.estimate, self.ledger, self.process)


@contextmanager
def observe(predicted: JobEstimate | None = None) -> Iterator[ObservedRun]:
    """Watch this process's PyTorch for the length of a block, with the probe that `vramtui run` uses.

    It uses the probe's hooks, a thread, and a socket in this user's folder; the training loop is unchanged. The end of
    the block waits up to a second for the last message.

    Args:
        predicted: what `vramtui.estimate` said.

    >>> import vramtui
    >>> with vramtui.observe() as run:
    ...     pass  # train
    >>> run.comparison is None
    True
    """

    def own() -> ObservedJob | None:
        return next((job for job in listener.jobs() if job.pid == os.getpid()), None)

    if not isinstance(predicted, JobEstimate | None):
        raise UserError(f"predicted is {predicted!r}: give what vramtui.estimate returned")
    run = ObservedRun(predicted)
    listener = ProbeListener(f"observe-{os.getpid()}-{time.monotonic_ns()}")
    try:
        probe.start()
        yield run
    finally:
        began = time.time()
        deadline = time.monotonic() + LAST_BEAT
        while time.monotonic() < deadline and (job := own()) is not None:
            if job.beat is not None and job.beat.at >= began:
                break
            time.sleep(0.02)
        listener.close()
        run.job = own()
        if run.job is not None:
            with suppress(SourceFailed):
                rows = [row for gpu in sample().gpus for row in gpu.processes if row.pid == os.getpid()]
                run.process = max((row.used_memory for row in rows if row.used_memory is not None), default=None)


def _source(host: str | None, *, demo: bool) -> Source:
    """The source of this machine, of another host over ssh, or the demo.

    Raises:
        UserError: the libraries that ask it are not installed.
        SourceFailed: no driver answers.
    """
    if demo:
        from vramtui.sources.demo import DemoSource  # noqa: PLC0415 - only if it is asked for

        return DemoSource()
    if host is not None:
        from vramtui.records.recording.files import LiveRecording  # noqa: PLC0415 - only for another host
        from vramtui.sources.ssh import Handshakes, SshSource, host_names  # noqa: PLC0415 - only for another host

        names = host_names([host], {})
        if len(names) != 1:
            raise UserError(f"{host!r} is {len(names)} hosts: ask for one at a time")
        return SshSource(names[0], 1.0, LiveRecording, Handshakes())
    from vramtui.sources.pick import pick_source  # noqa: PLC0415 - loads pynvml, which the demo does not need

    try:
        return pick_source()
    except SourceFailed:
        if importlib.util.find_spec("pynvml") is None:
            raise UserError("sample needs pynvml: pip install 'vramtui-core[nvml]', or vramtui itself") from None
        raise


def sample(*, host: str | None = None, demo: bool = False) -> Sample:
    """Every GPU of this machine and the processes on it, now. `to_records()` makes rows for a table of it.

    Args:
        host: another machine instead, over ssh, as `gpu01` or `anna@gpu01`.
        demo: the built-in host instead, whose GPUs are not real.

    Raises:
        SourceFailed: the driver cannot be asked, or the host not reached; `message` says why, `hint` what to do.

    >>> import vramtui
    >>> rows = vramtui.sample(demo=True).to_records()
    >>> sorted(rows[0])[:5]
    ['command', 'cpu_percent', 'gpu_index', 'gpu_name', 'gpu_total']
    """
    require_text(host=host)
    source = _source(host, demo=demo)
    try:
        return source.read().in_rows()
    finally:
        source.close()


_Closed = AbstractContextManager["SampleStream"]
_ClosedLater = AbstractAsyncContextManager["SampleStream"]


class SampleStream(Iterator[Sample], AsyncIterator[Sample], _Closed, _ClosedLater):
    """Sample after sample, for `for` and for `async for`; the latter waits on a thread, so that the loop goes on. In
    `with`, or `async with`, it is closed at the end.

    Args:
        source: what is read.
        interval: seconds from the beginning of one read to that of the next; one that takes longer skips turns.
    """

    def __init__(self, source: Source, interval: float) -> None:
        self._source = source
        self._interval = interval
        self._next = time.monotonic()

    def __next__(self) -> Sample:
        now = time.monotonic()
        if now < self._next:
            time.sleep(self._next - now)
        self._next += self._interval * (1 + max(0.0, now - self._next) // self._interval)
        return self._source.read().in_rows()

    async def __anext__(self) -> Sample:
        import asyncio  # noqa: PLC0415 - whoever awaits has loaded it

        return await asyncio.to_thread(self.__next__)

    def close(self) -> None:
        """Let go of the source: a connection to another host ends. So does leaving a `with` block."""
        self._source.close()

    def __exit__(self, *reason: object) -> None:
        self.close()

    async def __aexit__(self, *reason: object) -> None:
        self.close()


def watch(interval: float = 1.0, *, host: str | None = None, demo: bool = False) -> SampleStream:
    """Sample after sample, without an end: `for sample in vramtui.watch(1.0): …`, or `async for`.

    Args:
        interval: seconds between samples.
        host: another machine instead, over ssh.
        demo: the built-in host instead, whose GPUs are not real.

    Raises:
        UserError: the interval is not a number above 0.
        SourceFailed: the driver cannot be asked, or the host not reached, now or later; it may be asked again.

    >>> import vramtui
    >>> stream = vramtui.watch(0.01, demo=True)
    >>> len(next(stream).gpus)
    4
    """
    require_text(host=host)
    number: object = interval  # as callers without types may have it
    if not isinstance(number, (int, float)) or not 0 < number < float("inf"):
        raise UserError(f"the interval is {interval!r}: give seconds above 0")
    return SampleStream(_source(host, demo=demo), interval)
