"""Everything known at one moment, as it is taken away: sample, peaks, predictions and comparisons."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from vramtui.core.base.text import toml_words
from vramtui.core.base.units import GIB, UNKNOWN, format_bytes, format_gib, format_percent
from vramtui.core.estimate.devices import CARDS, DEFAULT_CARD, Device
from vramtui.core.estimate.estimate import Estimate, Ledger, Prediction
from vramtui.core.estimate.fits import Comparison, compare
from vramtui.core.observation.history import History, Peak
from vramtui.core.observation.matcher import Matched
from vramtui.core.observation.readings import NVIDIA, Gpu, Process, ProcessKey, Sample, process_key
from vramtui.core.schema.preset import PresetFile, explicit_values
from vramtui.core.schema.workload import Parallel, Workload

if TYPE_CHECKING:
    from vramtui.core.observation.probe_messages import ObservedJob

EstimateFor = Callable[[PresetFile, Device], Estimate | None]
LedgerOf = Callable[[Gpu, Process, int | None], Ledger]


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """A preset with other values: the changed ones by key, and the bytes of its process."""

    changes: dict[str, Any]
    process: int


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """One process on one GPU and all that is known of it; `gone_at` when it has exited (seconds since the epoch).

    `is_assumed` says that not all that the estimate goes by is known of the process; `span` is the range of bytes that
    it may need if that is too wide for a prediction. `workload` is what the estimate is of, and `what_if` the changes
    to it that a person tries out. `values` are the bytes it held from each of `times` on (seconds since the epoch), as
    far as they were seen.
    """

    key: ProcessKey
    gpu_index: int
    process: Process
    peak: Peak | None = None
    gone_at: float | None = None
    preset: str | None = None
    is_assumed: bool = False
    estimate: Estimate | None = None
    comparison: Comparison | None = None
    times: tuple[float, ...] = ()
    values: tuple[int, ...] = ()
    workload: Workload | None = None
    what_if: WhatIf | None = None
    span: tuple[int, int] | None = None

    @property
    def settings(self) -> str:
        """The run and its sharding: precision, and values that are not the usual ones."""
        if self.workload is None:
            return ""
        run, parallel = self.workload.run, self.workload.parallel or Parallel()
        return toml_words(explicit_values(run) | {"precision": run.precision} | explicit_values(parallel))

    @property
    def outlook(self) -> tuple[str, ...]:
        """Sentences about the changes that a person tries out, and about the range that it may need."""
        lines = []
        if self.what_if is not None:
            lines.append(f"what if {toml_words(self.what_if.changes)}: {format_bytes(self.what_if.process)}")
        if self.span is not None:
            least, most = map(format_bytes, self.span)
            lines.append(f"may need {least} to {most}: not all of its settings are known")
        return tuple(lines)


class RecordedTick(NamedTuple):
    """One moment of a recording.

    Attributes:
        sample: what was seen.
        jobs: what each job with a probe has reported so far.
        predictions: those of the sample's processes that have one.
        peaks: what the sample's processes held at most in their lives, as far as that is known.
    """

    sample: Sample
    jobs: "Sequence[ObservedJob]" = ()
    predictions: Mapping[ProcessKey, Prediction] = MappingProxyType({})
    peaks: Mapping[ProcessKey, Peak] = MappingProxyType({})


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A moment to take away. `versions` names the programs and drivers behind the figures."""

    sample: Sample
    holdings: tuple[Holding, ...]
    versions: dict[str, str]

    @property
    def sentences(self) -> tuple[str, ...]:
        """A sentence to forward for each process with a prediction or range, the largest first; else of the largest."""
        largest = sorted(self.holdings, key=lambda one: -(one.process.used_memory or 0))
        known = [one for one in largest if one.comparison is not None or one.span is not None] or largest[:1]
        return tuple(self._sentence(one) for one in known)

    def _sentence(self, holding: Holding) -> str:
        process, compared = holding.process, holding.comparison
        who = f"pid {process.pid} ({process.user or UNKNOWN}) on GPU {holding.gpu_index}"
        size = holding.peak.bytes if holding.peak is not None else process.used_memory
        if compared is None or holding.span is not None:
            return f"{who}: {format_bytes(size)}, {', '.join(holding.outlook) or 'no prediction'}"
        gpu = next((gpu for gpu in self.sample.gpus if gpu.index == holding.gpu_index), None)
        free = None if gpu is None else gpu.memory.free
        off = "" if compared.fraction is None else f" ({format_percent(compared.fraction)})"
        words = f"{who}: {format_gib(size)} of {format_gib(compared.predicted)} GiB predicted{off}"
        if free is None or process.used_memory is None:
            return words
        spare = free + process.used_memory - compared.predicted
        fits = f"fits, {format_gib(spare)} spare" if spare >= 0 else f"does not fit, {format_gib(-spare)} short"
        return f"{words}, {fits}"

    @property
    def users(self) -> tuple[tuple[str, int, int], ...]:
        """Each user with the number of processes and their bytes, the most first."""
        sums: dict[str, tuple[int, int]] = {}
        for one in self.holdings:
            count, size = sums.get(one.process.user or UNKNOWN, (0, 0))
            sums[one.process.user or UNKNOWN] = count + 1, size + (one.process.used_memory or 0)
        return tuple(sorted(((user, *both) for user, both in sums.items()), key=lambda row: -row[2]))

    def vendor_of(self, holding: Holding) -> str:
        return next((gpu.vendor for gpu in self.sample.gpus if gpu.index == holding.gpu_index), NVIDIA)


def device_of(gpu: Gpu) -> Device:
    """The card an estimate for `gpu` is made for; what the driver does not tell is taken from the default card."""
    fallback = CARDS[DEFAULT_CARD]
    memory, total = gpu.memory, gpu.memory.total
    if total is None and memory.unified and memory.free is not None:
        total = memory.free + (memory.used or 0)
        total -= total % GIB  # it goes up and down all the time, and each size is another card to make estimates for
    return Device(
        name=gpu.name,
        capability=gpu.compute_capability or fallback.capability,
        total_memory=fallback.total_memory if total is None else total - (gpu.memory.reserved or 0),
    )


def estimates_of(sample: Sample | None, matched: Matched, estimate: EstimateFor) -> dict[ProcessKey, Estimate | None]:
    """The estimate for each matched process in `sample`, made for the card that it runs on."""
    gpus = {gpu.uuid: gpu for gpu in sample.gpus} if sample is not None else {}
    return {
        key: estimate(preset_file, device_of(gpus[key.gpu_uuid]))
        for key, preset_file in matched.items()
        if key.gpu_uuid in gpus
    }


def observed_ledger(peak: int | None, reported: Ledger | None = None, *, is_complete: bool = True) -> Ledger:
    """The process from outside, with its `peak` in bytes, and its own report.

    What it holds beyond PyTorch's reserved is the context, with whatever other libraries took. A peak that was sampled
    may have missed the moment: one below reserved says nothing about the context; nor does what lies beyond it where
    the job was gone before its last words (not `is_complete`): its allocator may have grown since it last reported.
    """
    ledger = reported or Ledger()
    beyond = 0 if peak is None or ledger.reserved is None or not is_complete else peak - ledger.reserved
    return msgspec.structs.replace(ledger, process=peak, context=beyond if beyond > 0 else ledger.context)


def take_snapshot(
    sample: Sample,
    history: History,
    matched: Matched,
    estimate: EstimateFor,
    versions: dict[str, str],
    *,
    observed: LedgerOf = lambda _gpu, _process, peak: observed_ledger(peak),  # as no process reports anything
) -> Snapshot:
    """Put together what is known of every process in `sample`; `observed` is what is seen of each, by its peak."""
    holdings = []
    for gpu in sample.gpus:
        tracks = history.here(sample.host.name, gpu.uuid).of(gpu.facts)
        for process, listed in zip(gpu.processes, tracks, strict=True):
            key = process_key(sample.host.name, gpu, process)
            preset_file = matched.get(key)
            is_known = listed is not None and listed.process.started_at == process.started_at
            track = listed if is_known else history.tracks.get(key)
            known: dict[str, Any] = {}
            if preset_file is not None:
                known["preset"], known["is_assumed"] = preset_file.key, preset_file.is_assumed
                known["estimate"] = predicted = estimate(preset_file, device_of(gpu))
                known["workload"] = preset_file.preset.workload
                if predicted:
                    peak = track.peak.bytes if track and track.peak else process.used_memory
                    ledger = observed(gpu, process, peak)
                    known["comparison"] = compare(preset_file.key, predicted, ledger, process.used_memory)
            if track is not None:
                known["peak"], known["gone_at"] = track.peak, track.gone_at
                curve = track.table.curve(track.row)
                if values := curve.values[0]:
                    known["times"], known["values"] = (*curve.times, track.last_seen), (*values, values[-1])
            holdings.append(Holding(key=key, gpu_index=gpu.index, process=process, **known))
    return Snapshot(sample=sample, holdings=tuple(holdings), versions=versions)
