"""`trace`: a training step on a card that is not there; `dry_run`: a whole job on one. Each in a process of its own."""

import importlib
import importlib.util
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from multiprocessing import spawn
from pathlib import Path
from typing import Any, Literal

import msgspec

from vramtui.api.estimation import device_of
from vramtui.api.workloads import preset_for, require_text
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import DEFAULT_CARD, Device
from vramtui.core.observation.probe_messages import PhaseEnd
from vramtui.estimators.traced.estimator import request_of
from vramtui.estimators.traced.process.interpreters import Interpreter, job_interpreter, own_interpreter
from vramtui.estimators.traced.process.results import TraceRequest, TraceResult
from vramtui.estimators.traced.process.run import TraceTimeoutError, is_file_target, split_target
from vramtui.estimators.traced.process.run import trace as trace_in_child

Step = Callable[..., object]


SENDING = "make it a function of a module, give its file as 'train.py:main', or install cloudpickle"
UNGUARDED = (
    "the process that traces a function reads its script first, and came to vramtui.trace again: put what the script"
    ' does under `if __name__ == "__main__":`'
)


def trace(
    step: str | os.PathLike[str] | Step,
    model: object = None,
    optimizer: object = None,
    *,
    device: str = DEFAULT_CARD,
    memory: str | int | None = None,
    steps: int = 3,
    alloc_conf: str = "",
    python: str | None = None,
    keep_files: bool = False,
    timeout: float | None = None,
    show_output: bool = False,
    **settings: object,
) -> TraceResult:
    """Run PyTorch code on fake tensors as if the card were there; what it holds, phase by phase and to the byte.

    It runs in a process of its own, on one processor, without a GPU; nothing of this process changes. Within it "cuda"
    is the card that is stood in for. The result's `peak_allocated`, `peak_reserved` and `process` are bytes;
    `timeline`, `peak_categories` and `largest` say when they are held, for what, and by which line.

    Args:
        step: a function; a Python file, `"train.py"` or `"train.py:main"`; or what `estimate` takes as a model. A
            function is called `steps` times with the model and the optimizer, where they are given, and has to be one
            that pickle can send (of a module, or of a script's top level; any, where cloudpickle is installed).
        model: a module on the CPU or on meta; a copy of it stands on "cuda" when the step is called.
        optimizer: the optimizer of its parameters.
        device: the card to stand in for.
        memory: its memory, where it is another than the card's: bytes or text such as `"24GiB"`.
        steps: the code is ended after this many optimizer steps.
        alloc_conf: what `PYTORCH_CUDA_ALLOC_CONF` would say.
        python: the program or the environment to trace with; None for the job's own as it is found: the active
            environment, a `.venv` beside the file, its first line, `python3` in PATH. A function is traced with this
            very Python.
        keep_files: let the code write its files and reach the network; else what it writes is thrown away.
        timeout: seconds after which it is ended.
        show_output: let what the code prints through to standard error.
        settings: a run's values, as in `estimate`, where a preset is traced.

    Raises:
        UserError: no torch that can be traced is within reach, the step cannot be sent, or the code cannot be followed
            to its end.
    """
    if not callable(step):
        require_text(step=step)
    interpreter = own_interpreter() if callable(step) else job_interpreter(_file_of(step), python)
    if interpreter.refusal:
        raise UserError(interpreter.refusal)
    card = device_of(device, memory)
    with tempfile.TemporaryDirectory(prefix="vramtui-") as folder:
        if callable(step):
            request = _request_of_function(step, (model, optimizer), Path(folder), settings, card)
        else:
            request = _request_of_text(step, card, settings, interpreter)
        request = msgspec.structs.replace(request, steps=steps, alloc_conf=alloc_conf, keep_files=keep_files)
        try:
            return trace_in_child(request, interpreter=interpreter, timeout=timeout, show_output=show_output)
        except TraceTimeoutError as late:
            fewer = "steps=1, " if steps > 1 else ""
            raise UserError(f"{late}; {fewer}smaller data or a longer timeout= let it come to its end") from None


def _request_of_function(
    step: Step, given: tuple[object, object], folder: Path, settings: dict[str, object], card: Device
) -> TraceRequest:
    if step.__module__ == "__mp_main__":
        raise UserError(UNGUARDED)
    if settings:
        raise UserError(f"{', '.join(settings)}: settings are for a preset, and this is a function")
    pickled = folder / "step.pickle"
    pickled.write_bytes(_pickled(step, tuple(part for part in given if part is not None)))
    return TraceRequest(pickled=str(pickled), device=card)


def _request_of_text(
    step: str | os.PathLike[str], card: Device, settings: dict[str, object], interpreter: Interpreter
) -> TraceRequest:
    target = os.fspath(step)
    if is_file_target(target):
        path, function = split_target(target)
        return TraceRequest(path=path, function=function, device=card)
    return request_of(preset_for(target, settings).preset.workload, card, interpreter=interpreter)


def _file_of(step: str | os.PathLike[str]) -> str:
    """The Python file that is named; empty for a preset."""
    target = os.fspath(step)
    return split_target(target)[0] if is_file_target(target) else ""


def _pickled(step: Step, arguments: tuple[object, ...]) -> bytes:
    """Two pickles: how this process finds its modules, `__main__` among them, and then the step with its arguments.

    Raises:
        UserError: pickle cannot send them.
    """
    preparation = spawn.get_preparation_data("vramtui trace")
    preparation = {
        key: preparation[key]
        for key in ("sys_path", "dir", "init_main_from_path", "init_main_from_name")
        if key in preparation
    }
    dumps: Callable[[object], bytes] = pickle.dumps
    name = getattr(step, "__qualname__", repr(step))
    if importlib.util.find_spec("cloudpickle") is not None:
        cloudpickle: Any = importlib.import_module("cloudpickle")
        dumps = cloudpickle.dumps
        if _is_interactive():
            preparation = {key: value for key, value in preparation.items() if not key.startswith("init_main")}
    elif _is_interactive() and step.__module__ == "__main__":
        raise UserError(f"{name} stands in no file that the process that traces it can read: {SENDING}")
    try:
        return pickle.dumps(preparation) + dumps((step, arguments))
    except Exception as error:
        raise UserError(f"{name} cannot be sent to the process that traces it ({error}): {SENDING}") from error


def _is_interactive() -> bool:
    """Whether the program stands in no file: typed at a prompt, or read from standard input."""
    return not Path(getattr(sys.modules["__main__"], "__file__", None) or "").is_file()


Values = Literal["zeros", "ones"]
WITHOUT_CUDA = "no process of it used CUDA through PyTorch"
LAST_WORDS = 500  # characters of what a job that told nothing said last


class DryRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a job came to on an emulated card: figures of its largest process, in bytes.

    Attributes:
        verdict: `fits`, `tight`, `does not fit`, `unknown` where it ran out of memory after it took all places
            of masks that kernels would have computed, or `failed` where the job ended for another reason.
        exit_code: of the job.
        steps: that its optimizers took; `ended_after` so many seconds where `run --timeout` ended it.
        allocated, reserved: PyTorch's peaks; `process` with the context and what other libraries hold.
        memory: of the card.
        parts: weights, gradients, optimizer and activations at the peak, as far as they are known.
        phases: the ends of its phases.
        out_of_memory: what was asked for, and how much was free, where it ran out.
        caught: the same of out-of-memory errors after which it went on, as far as told; `times_caught` counts all.
        bounded: whether its way may hang on values that kernels would have computed; `read_places` names the lines.
        unmodelled: functions that the emulated card does not have, with the library that called each.
    """

    card: str
    cards: int
    verdict: str
    exit_code: int
    steps: int
    ended_after: float | None
    allocated: int | None
    reserved: int | None
    process: int | None
    memory: int
    parts: dict[str, int | None] | None
    phases: tuple[PhaseEnd, ...]
    out_of_memory: dict[str, Any] | None
    caught: tuple[dict[str, Any], ...]
    times_caught: int
    bounded: bool
    reads: int
    read_places: tuple[dict[str, Any], ...]
    unmodelled: tuple[dict[str, str], ...]

    @property
    def fits(self) -> bool | None:
        """Whether the job fits; None where it failed for another reason than memory, or nobody knows."""
        return None if self.verdict in ("failed", "unknown") else self.verdict != "does not fit"


class _Document(msgspec.Struct):
    cards: list[DryRun]


class _Error(msgspec.Struct):
    error: str


def _error_of(errors: str) -> str:
    """The program's own sentence, which is a document on the last line, or the last of what was said."""
    last = errors.strip()
    try:
        return msgspec.json.decode(last.rpartition("\n")[2], type=_Error).error
    except (msgspec.DecodeError, ValueError):
        return last[-LAST_WORDS:].removeprefix("vramtui: ") or "the job told nothing"


def dry_run(
    command: Sequence[str],
    *,
    on: str = DEFAULT_CARD,
    steps: int | None = 3,
    values: Values = "zeros",
    timeout: float | None = None,
    show_output: bool = False,
) -> DryRun:
    """Run a command, unchanged and without a GPU, with PyTorch's CUDA build on an emulated card.

    Args:
        command: program and arguments, as `["python", "train.py", "--batch-size", "8"]`; its Python is the job's.
        on: the card, or several of one kind: `"RTX4090"`, `"8xH100"`.
        steps: end it after so many steps of its optimizer; None: at its own end.
        values: as what values are read that kernels would have computed.
        timeout: seconds after which it is ended.
        show_output: let what it prints through to standard error.

    Raises:
        UserError: the card is not known, there is no C compiler, the program `vramtui` is not installed, the job used
            no CUDA, or it took longer than `timeout`.
    """
    card, _ = run_dry(command, on=on, steps=steps, values=values, timeout=timeout, show_output=show_output)
    if card.process is None and card.verdict == "failed" and card.exit_code == 0:
        raise UserError(WITHOUT_CUDA)
    return card


def run_dry(
    command: Sequence[str],
    *,
    on: str,
    steps: int | None,
    values: Values = "zeros",
    timeout: float | None = None,
    show_output: bool = False,
) -> tuple[DryRun, str]:
    """What `dry_run` answers, also of a job without CUDA, and what the job printed (empty where that was let through).

    Args:
        command: program and arguments.
        on: the card, or several of one kind.
        steps: end it after so many steps of its optimizer; None: at its own end.
        values: as what values are read that kernels would have computed.
        timeout: seconds after which it is ended.
        show_output: let what it prints through to standard error.

    Raises:
        UserError: as there, but for a job without CUDA.
    """
    if find_spec("vramtui.cli") is None:
        raise UserError("dry_run needs the program: pip install vramtui")
    with subprocess.Popen(  # noqa: S603 - the caller's own command, in vramtui's own program
        dry_arguments(command, on=on, steps=steps, values=values),
        stdout=subprocess.PIPE,
        stderr=None if show_output else subprocess.PIPE,
        text=True,
    ) as ran:
        try:
            output, errors = ran.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            ran.terminate()  # which it passes on to the job
            raise UserError(f"the job did not end within {timeout:g} s") from None
    return dry_result(output, errors or ""), errors or ""


def dry_arguments(command: Sequence[str], *, on: str, steps: int | None, values: Values = "zeros") -> list[str]:
    """What starts the program on it, for one document on standard output.

    Args:
        command: program and arguments.
        on: the card, or several of one kind.
        steps: end it after so many steps of its optimizer; None: at its own end.
        values: as what values are read that kernels would have computed.
    """
    taken = [] if steps is None else ["--steps", str(steps)]
    asked = ["run", "--on", on, "--json", "--values", values, *taken, "--", *command]
    return [sys.executable, "-P" if sys.version_info >= (3, 11) else "-I", "-m", "vramtui", *asked]


def dry_result(output: str, errors: str) -> DryRun:
    """What it wrote to standard output.

    Raises:
        UserError: that is no document; the sentence is the last of standard error.
    """
    try:
        (card,) = msgspec.json.decode(output, type=_Document).cards
    except (msgspec.DecodeError, ValueError):
        raise UserError(_error_of(errors)) from None
    return card
