"""An experiment's two sides: predicted on fake tensors, measured on a card; and the table that they make."""

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import Device
from vramtui.estimators.lab import formulas
from vramtui.estimators.lab.catalogue import Experiment, ExperimentRun
from vramtui.estimators.traced.process.interpreters import Interpreter, job_interpreter
from vramtui.estimators.traced.process.results import TraceRequest
from vramtui.estimators.traced.process.run import START, trace

CODE = Path(__file__).parents[1] / "traced" / "experiments"
NATIVE = "vramtui.estimators.traced.experiments.native"
_ENDLESS = 1 << 30
_PATIENCE = 300.0
AT_ONCE = 2  # runs that are predicted at the same time, each in a process of its own that loads torch
CARD_FILES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg")


class TorchFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What PyTorch says of its memory at one moment, in bytes; the peaks are those since the moment before.

    `categories` are a trace's, of what is allocated; a card knows none.
    """

    label: str
    allocated: int
    reserved: int
    peak_allocated: int
    peak_reserved: int
    categories: dict[str, int] = {}

    @property
    def figures(self) -> tuple[int, int, int, int]:
        """The four numbers."""
        return self.allocated, self.reserved, self.peak_allocated, self.peak_reserved


class MeasuredCard(msgspec.Struct, frozen=True, kw_only=True):
    """The card that was measured on."""

    name: str
    capability: tuple[int, int]
    total_memory: int

    @property
    def device(self) -> Device:
        """The card as a trace takes it."""
        return Device(name=self.name, capability=self.capability, total_memory=self.total_memory)


class MeasuringHost(msgspec.Struct, frozen=True, kw_only=True):
    """Who measured: the torch, and the card; None where PyTorch sees none."""

    torch: str
    card: MeasuredCard | None = None


class MeasuredRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run on a card."""

    facts: MeasuringHost
    rows: tuple[TorchFigures, ...]


class Measurer(Protocol):
    """Anything that can run an experiment on a real card."""

    def __call__(self, experiment: Experiment, run: ExperimentRun) -> MeasuredRun | None:
        """What was measured; None where there is no card for PyTorch.

        Raises:
            UserError: there is one, and the experiment failed on it.
        """
        ...


class PredictedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run on fake tensors."""

    torch: str
    rows: tuple[TorchFigures, ...]


class LabRow(msgspec.Struct, frozen=True, kw_only=True):
    """A moment of an experiment, as predicted and as measured.

    Attributes:
        run: the title of its run.
        label: what has just happened.
        predicted: by the trace, on fake tensors.
        measured: on a card.
        formula: bytes allocated by arithmetic alone; None where there is no formula.
        printed: bytes allocated as an article prints them; None where none does.
    """

    run: str
    label: str
    predicted: TorchFigures
    measured: TorchFigures | None = None
    formula: int | None = None
    printed: int | None = None

    @property
    def difference(self) -> int | None:
        """Predicted less measured, of allocated, in bytes."""
        return None if self.measured is None else self.predicted.allocated - self.measured.allocated

    @property
    def exact(self) -> bool | None:
        """Whether all four figures agree to the byte."""
        return None if self.measured is None else self.predicted.figures == self.measured.figures


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """A finished experiment: its rows, and who measured, if anyone."""

    experiment: Experiment
    device: Device
    torch: str
    facts: MeasuringHost | None
    rows: tuple[LabRow, ...]

    @property
    def exact(self) -> bool | None:
        """Whether every row agrees; None where nothing was measured."""
        return None if self.facts is None else all(row.exact for row in self.rows)


def perform(
    experiment: Experiment,
    device: Device,
    *,
    interpreter: Interpreter | None = None,
    measurer: Measurer | None,
    named: bool,
) -> Outcome:
    """Run one experiment.

    Args:
        experiment: which.
        device: the card to predict for.
        interpreter: the Python with torch; None for the job's own.
        measurer: measures beside the prediction; None does not.
        named: a person has named `device`: only a card of its capability is measured. Otherwise the prediction is for
            the card that was measured.

    Raises:
        UserError: a run failed.
    """
    seen = [measurer(experiment, run) if measurer else None for run in experiment.runs]
    card = next((one.facts.card for one in seen if one is not None), None)
    if card is not None and not named:
        device = card.device
    if card is None or card.capability != device.capability:
        seen = [None] * len(seen)

    def ask(run: ExperimentRun) -> PredictedRun:
        return predict(experiment, run, device, interpreter)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        predicted = list(pool.map(ask, experiment.runs))
    rows: list[LabRow] = []
    for run, prediction, measured in zip(experiment.runs, predicted, seen, strict=True):
        rows += _side_by_side(run, prediction, measured, formulas.predicted(experiment, run, device))
    return Outcome(
        experiment=experiment,
        device=device,
        torch=predicted[-1].torch,
        facts=next((one.facts for one in seen if one is not None), None),
        rows=tuple(rows),
    )


def _side_by_side(
    run: ExperimentRun, predicted: PredictedRun, measured: MeasuredRun | None, by_formula: dict[str, int]
) -> Iterator[LabRow]:
    by_label = {row.label: row for row in measured.rows} if measured else {}
    for row in predicted.rows:
        yield LabRow(
            run=run.title,
            label=row.label,
            predicted=row,
            measured=by_label.get(row.label),
            formula=by_formula.get(row.label),
            printed=run.printed.get(row.label),
        )


def predict(
    experiment: Experiment,
    run: ExperimentRun,
    device: Device,
    interpreter: Interpreter | None = None,
) -> PredictedRun:
    """The run on fake tensors.

    Args:
        experiment: what to run.
        run: which of its functions.
        device: the card to stand in for.
        interpreter: the Python with torch; None for the job's own.

    Raises:
        UserError: no torch that traces is within reach, or the code failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.json"
        request = TraceRequest(
            path=str(CODE / f"{experiment.module}.py"),
            function=run.function,
            arguments=(str(rows),),
            device=device,
            steps=_ENDLESS,
            keep_files=True,
        )
        result = trace(request, interpreter=interpreter or job_interpreter(), timeout=_PATIENCE)
        if result.out_of_memory is not None:
            raise UserError(f"{experiment.key}: {result.out_of_memory}")
        return PredictedRun(torch=result.torch, rows=_read(rows))


def measure(experiment: Experiment, run: ExperimentRun, interpreter: Interpreter | None = None) -> MeasuredRun | None:
    """The run on the first card, in a process of its own; a Measurer."""
    if not any(Path(name).exists() for name in CARD_FILES):
        return None
    with tempfile.TemporaryDirectory() as folder:
        rows, facts = Path(folder) / "rows.json", Path(folder) / "facts.json"
        command = [str((interpreter or job_interpreter()).path), str(START), NATIVE]
        command += [experiment.module, run.function, str(rows), str(facts)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)  # noqa: S603 - our own module, by the job's Python
        except subprocess.TimeoutExpired:
            raise UserError(f"{experiment.key} took longer than {_PATIENCE:g} s on the card") from None
        host: MeasuringHost | None = None
        with contextlib.suppress(FileNotFoundError):
            host = msgspec.json.decode(facts.read_bytes(), type=MeasuringHost)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise UserError(f"{experiment.key} failed on the card: {last}")
        if host is None or host.card is None:
            return None
        return MeasuredRun(facts=host, rows=_read(rows))


def _read(path: Path) -> tuple[TorchFigures, ...]:
    return msgspec.json.decode(path.read_bytes(), type=tuple[TorchFigures, ...])
