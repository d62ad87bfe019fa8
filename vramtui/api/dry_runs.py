"""`dry_run`: a function, a script or a command without its GPU, in a process of its own."""

import importlib
import importlib.util
import os
import pickle
import sys
import tempfile
from collections.abc import Callable, Sequence
from multiprocessing import spawn
from pathlib import Path
from typing import Any

from vramtui.api.estimation import device_of, require_text
from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.core.estimate.devices import DEFAULT_CARD, Device
from vramtui.dryrun.command import GpuAnswer, engine_of, parse_gpu, prepared
from vramtui.dryrun.command import dry_run as run_dry
from vramtui.dryrun.fake.run import TraceTimeoutError
from vramtui.dryrun.fake.run import trace as trace_in_child
from vramtui.dryrun.job_command import DryRunJob, Engine, RunTools, own_interpreter
from vramtui.dryrun.result import DryRun, TraceRequest
from vramtui.presets import xdg_folder
from vramtui.sources.probe_listener import ProbeListener

__all__ = ["DryRun", "answer_of", "dry_run"]
Step = Callable[..., object]


SENDING = "make it a function of a module, or install cloudpickle"
UNGUARDED = (
    "the dry run's process reads the function's script first, and came to vramtui.dry_run again: put what the script"
    ' does under `if __name__ == "__main__":`'
)


def dry_run(
    step: str | os.PathLike[str] | Sequence[str] | Step,
    model: object = None,
    optimizer: object = None,
    *,
    gpu: str | None = None,
    memory: str | int | None = None,
    engine: Engine | None = None,
    steps: int = 3,
    python: str | None = None,
    keep_files: bool = False,
    timeout: float | None = None,
    show_output: bool = False,
    alloc_conf: str = "",
) -> DryRun:
    """Run a function, a script or a command without its GPU; what it holds, phase by phase and to the byte.

    It runs in a process of its own; nothing of this process changes. The result's `peak_allocated`, `peak_reserved` and
    `process` are bytes; `fits` is the verdict; `timeline`, `peak_categories` and `largest` say when memory is held, for
    what, and by which line.

    Args:
        step: a command, `["python", "train.py", "--batch-size", "8"]`; a Python file, `"train.py"`; or a function. A
            function is called `steps` times with the model and the optimizer, on fake tensors, and has to be one that
            pickle can send (of a module, or of a script's top level; any, if cloudpickle is installed).
        model: a module on the CPU or on meta; a copy of it is on "cuda" when the function is called.
        optimizer: the optimizer of its parameters.
        gpu: the GPU, or several of one kind: `"RTX4090"`, `"8xH100"`; an H100 by default.
        memory: its memory, if it is another: bytes or text like `"24GiB"`.
        engine: `"cuda"`, PyTorch's CUDA build on a simulated GPU, or `"fake"`, fake tensors; None: the one that
            the job's PyTorch has.
        steps: optimizer steps after which it is ended; 0: at its own end.
        python: the program or the environment of a file; None: found as `vramtui dry-run` finds it.
        keep_files: let the code write its files and reach the network; else what it writes is thrown away.
        timeout: seconds after which it is ended.
        show_output: let what it prints through to standard error.
        alloc_conf: value of `PYTORCH_CUDA_ALLOC_CONF`.

    Raises:
        UserError: no torch is within reach, the GPU is not known, or the code failed.
    """
    require_text(gpu=gpu, python=python, alloc_conf=alloc_conf)
    device, count = parse_gpu(gpu or DEFAULT_CARD)
    if memory is not None:
        device = device_of(device.name, memory)
    if callable(step):
        interpreter = own_interpreter().checked("fake")
        if engine == "cuda":
            raise UserError("a function runs on engine fake; give a script or a command for engine cuda")
        with tempfile.TemporaryDirectory(prefix="vramtui-") as folder:
            pickled = Path(folder) / "step.pickle"
            pickled.write_bytes(_pickled(step, tuple(part for part in (model, optimizer) if part is not None)))
            request = TraceRequest(
                pickled=str(pickled), device=device, steps=steps, alloc_conf=alloc_conf, keep_files=keep_files
            )
            try:
                return trace_in_child(request, interpreter=interpreter, timeout=timeout, show_output=show_output)
            except TraceTimeoutError as late:
                fewer = "steps=1, " if steps > 1 else ""
                raise UserError(f"{late}; {fewer}smaller data or a longer timeout= let it come to its end") from None
    if not step or isinstance(step, bytes) or not isinstance(step, (str, os.PathLike, Sequence)):
        raise UserError(f"step is {step!r}, of type {type(step).__name__}: give a command, a file or a function")
    words = (os.fspath(step),) if isinstance(step, (str, os.PathLike)) else tuple(map(str, step))
    conf = {"PYTORCH_CUDA_ALLOC_CONF": alloc_conf} if alloc_conf else {}
    job = prepared(
        DryRunJob(
            words=words,
            folder=str(Path.cwd()),
            environment={**os.environ, **conf},
            engine=engine,
            steps=steps,
            timeout=timeout,
            keep_files=keep_files,
            show_output=show_output,
        ),
        python,
    )
    answer = answer_of(job, (device, count))
    if answer.result is None:
        raise UserError(answer.error)
    return answer.result


def answer_of(job: DryRunJob, gpu: tuple[Device, int]) -> GpuAnswer:
    """Run a prepared job on a GPU.

    Raises:
        UserError: the engine cannot run any job here.
    """

    def listener(mark: str) -> ProbeListener | None:
        try:
            return ProbeListener(f"run-{mark}", run=mark)
        except SourceFailed:  # there can be no socket
            return None

    all_in_one = os.environ.get("VRAMTUI_DATA_DIR")
    tools = RunTools(listener, Path(all_in_one) if all_in_one else xdg_folder("XDG_CACHE_HOME", "~/.cache"))
    return run_dry(job, gpu, engine_of(job, tools)[0], tools)


def _pickled(step: Step, arguments: tuple[object, ...]) -> bytes:
    """Two pickles: how this process finds its modules, `__main__` among them, and then the step with its arguments.

    Raises:
        UserError: pickle cannot send them.
    """
    if step.__module__ == "__mp_main__":
        raise UserError(UNGUARDED)
    preparation = spawn.get_preparation_data("vramtui dry-run")
    sent = ("sys_path", "dir", "init_main_from_path", "init_main_from_name")
    preparation = {key: preparation[key] for key in sent if key in preparation}
    dumps: Callable[[object], bytes] = pickle.dumps
    name = getattr(step, "__qualname__", repr(step))
    # Typed at a prompt, or read from standard input.
    is_interactive = not Path(getattr(sys.modules["__main__"], "__file__", None) or "").is_file()
    if importlib.util.find_spec("cloudpickle") is not None:
        cloudpickle: Any = importlib.import_module("cloudpickle")
        dumps = cloudpickle.dumps
        if is_interactive:
            preparation = {key: value for key, value in preparation.items() if not key.startswith("init_main")}
    elif is_interactive and step.__module__ == "__main__":
        raise UserError(f"{name} is not in a file that the process of the dry run can read: {SENDING}")
    try:
        return pickle.dumps(preparation) + dumps((step, arguments))
    except Exception as error:
        raise UserError(f"{name} cannot be sent to the process of the dry run ({error}): {SENDING}") from error
