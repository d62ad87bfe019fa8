"""One dry run: a job's command on one kind of GPU, by the engine that its Python allows."""

import contextlib
import os
import re
import shlex
import shutil
import tempfile
import time
from pathlib import Path
from typing import IO

import msgspec
from msgspec.structs import replace

from vramtui.core.base.errors import UserError, nearest
from vramtui.core.base.text import printable
from vramtui.core.base.units import GIB, format_bytes
from vramtui.core.estimate.devices import Device, chosen_device
from vramtui.core.schema.workload import ServeRun
from vramtui.dryrun import job_command as jobs
from vramtui.dryrun import result as results
from vramtui.dryrun.child import HostFullError, kills_for_memory, memory_for_jobs
from vramtui.dryrun.cuda.build import build
from vramtui.dryrun.cuda.environment import MOST_DEVICES
from vramtui.dryrun.cuda.run import CudaRun, by_empty_masks, by_numbers, result_of, run_cuda, workspaces_on_card
from vramtui.dryrun.fake.run import TraceFailedError, run_fake, with_other_numbers
from vramtui.dryrun.job_command import DryRunJob, Engine, RunTools
from vramtui.dryrun.reads import CHEAP, JOB_FILE, LONGER, NUMBERS
from vramtui.dryrun.result import ONE_PROCESS, DryRun, JobCommand, LargestBatch, Progress, TraceRequest
from vramtui.dryrun.traces import JobTrace, preset_of_command
from vramtui.estimators.analytic import parameter_count
from vramtui.models.readers.bounded import read_plain
from vramtui.presets.importers.derived import STORES, JobPlace, derived_preset
from vramtui.probe.guards import loop_lines
from vramtui.probe.peak import MOST_EVENTS
from vramtui.probe.reads import EMPTY
from vramtui.probe.report import NO_END
from vramtui.probe.servers import LISTENS

LEAST_HOST = 2 * GIB  # of the host's memory that is free, for PyTorch's CUDA libraries and a small model
WAYS = 'weights take no memory with --engine fake, or on the meta device (`with torch.device("meta")`)'
# The words of PyTorch (c10/core/impl/alloc_cpu.cpp, 2.13) and NumPy for more than the kernel gives.
_REFUSED = re.compile(r"(?:you tried to allocate|Unable to allocate|unable to mmap) [^\n]*?(?:bytes|iB)\b")
NEEDS_CUDA = "engine fake cannot follow it. It needs PyTorch's CUDA build: {command}"
_LOADED = re.compile(r"""from_pretrained\(\s*["']([\w./-]{3,200})["']""")
KILLED = 128 + 9
OUTPUT_LINES, MOST_PRINTED = 60, 1 << 20  # that are shown, and bytes that are read for them
STEPS = 2
NO_LIMIT: dict[Engine, int] = {"cuda": 1 << 42, "fake": 1 << 50}  # addresses of the driver's are real ones
_NO_SUCH_GPU = re.compile(r"invalid device (ordinal|id)|cuda:[1-9]\d* .*(not|unavailable)", re.IGNORECASE)
_ASKED_GPUS = re.compile(r"(?:cuda:|set_device\(|device_ids ?= ?\[)([\d, ]+)")
# The last line of a traceback; PyTorch puts the rank before each line of one that ends a process.
_EXCEPTION = re.compile(r"(\[rank\d+\]:)?\s*((?:(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Exit)|ERROR)(?:: .+|:?$))")
# The first that torchrun, DeepSpeed and accelerate print once a process failed.
_LAUNCHER = re.compile(r"\] failed \(exitcode: |Killing subprocess \d|ChildFailedError|Error: Command '\['\S*python")
_CLEAN_UP = re.compile(r"(?:\[rank\d+\]:)?\[?[WIE]\d{4} |.*(?:resource_tracker|closing signal)|\s*$")
_WARNING = re.compile(r"^.+:\d+: \w*Warning: .*\n?(?:  .+\n?)?", re.MULTILINE)  # and its line, of any process
_BOXED = re.compile(r"╭─ Error ─+╮\n((?:│.*│\n)+)╰─+╯\s*\Z")  # Typer's and rich-click's
_NO_NETWORK = re.compile(r"Name or service not known|name resolution|[Cc]ouldn't (?:connect|reach)|is unreachable")
NEAR, LONGEST = 8, 400  # lines that an exception's message may have, and characters of its first that are shown


class GpuAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a job on a kind of GPU, or on several (`8xH100`); or why there is none, and the last lines that the
    job printed, with the verdict `failed`.
    """

    gpu: str
    verdict: str
    error: str = ""
    result: DryRun | None = None
    output: tuple[str, ...] = ()


class DryRunDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON of `vramtui dry-run --json`; `exit_code` is the process's own."""

    schema: int = 1
    command: tuple[str, ...]
    engine: Engine
    exit_code: int
    gpus: tuple[GpuAnswer, ...]
    largest_batch: LargestBatch | None = None


def parse_gpu(text: str) -> tuple[Device, int]:
    """A GPU and how many of it: `8xH100`.

    Raises:
        UserError: the GPU is not known, or there are too many.
    """
    several = re.fullmatch(r"(\d{1,3})x(.+)", text.strip())
    count = 1 if several is None else int(several[1])
    if not 1 <= count <= MOST_DEVICES:
        raise UserError(f"--gpu {text.strip()}: 1 to {MOST_DEVICES} GPUs")
    return chosen_device(text.strip() if several is None else several[2], None), count


def prepared(job: DryRunJob, python: str | None = None) -> DryRunJob:
    """The job with a Python before a script, and with the variables of before any probe.

    Raises:
        UserError: there is no such program or script, or no Python with torch.
    """
    words = job.words
    environment = jobs.own_variables(job.environment)
    if words[0].endswith((".py", ".pyw")):
        script = Path(job.folder) / words[0]
        if not script.is_file():
            folder = script.parent
            near = nearest(str(script.name), [one.name for one in folder.glob("*.py")] if folder.is_dir() else [])
            raise UserError(f"{printable(words[0])} does not exist{near}")
        words = (str(jobs.job_interpreter(str(script), python).path), *words)
    elif python is not None and Path(words[0]).name.startswith("python"):
        words = (str(jobs.job_interpreter("", python).path), *words[1:])
    elif python is not None and (program := jobs.job_interpreter("", python).path.parent / words[0]).is_file():
        words = (str(program), *words[1:])  # that environment's torchrun, for one
    elif shutil.which(words[0], path=environment.get("PATH")) is None and not (Path(job.folder) / words[0]).is_file():
        raise UserError(f"{printable(words[0])}: no such program")
    return replace(job, words=words, environment=environment)


def engine_of(job: DryRunJob, tools: RunTools) -> tuple[Engine, str]:
    """The engine for a prepared job, and a note if it is not the one that its Python would have.

    Raises:
        UserError: the engine that was asked for cannot run it.
    """
    python = jobs.python_of(job.words, job.environment)
    interpreter = None if python is None else jobs.interpreter_at(python, job.environment)
    if job.engine == "fake":
        return "fake", ""
    if interpreter is not None and interpreter.torch is not None and interpreter.cuda is None:
        if job.engine == "cuda":
            raise UserError(
                f"{printable(str(interpreter.path))} has torch {printable(interpreter.torch)}, which is not built for "
                "CUDA; engine cuda needs PyTorch's CUDA build"
            )
        return "fake", ""
    if job.engine == "cuda" or interpreter is None or interpreter.torch is None:
        return "cuda", ""
    memory = memory_for_jobs()
    if memory.free is not None and memory.free < LEAST_HOST:
        return "fake", f"engine fake: {memory.owner} has {format_bytes(memory.free)} free, too little for engine cuda"
    try:
        build(tools.cache)
    except UserError as error:
        return "fake", f"engine fake: {error}"
    return "cuda", ""


def host_note(job: DryRunJob, engine: Engine) -> str:
    """Say what the weights of the model that a command or its script names would take of the host's memory with engine
    `cuda`, if that is more than is free; else empty. Servers read weights piece by piece.
    """
    place = JobPlace(Path(job.folder), "", {one: job.environment[one] for one in STORES if one in job.environment})
    command, memory, text = shlex.join(job.words), memory_for_jobs(), ""
    free = 1 << 50 if memory.free is None else memory.free
    left = f"{memory.owner} has {format_bytes(free)} of {format_bytes(memory.total)} free"
    with contextlib.suppress(UserError, StopIteration):
        script = next(word for word in job.words if word.endswith(".py"))
        text = read_plain(Path(job.folder, script), JOB_FILE).decode(errors="replace")
    names = ("", *(f" --model {shlex.quote(name)}" for name in _LOADED.findall(text)[:3]))
    for name in names if engine == "cuda" else ():
        with contextlib.suppress(UserError, OSError, ValueError):
            preset_file = derived_preset(command + name, place)
            if preset_file is None or isinstance(preset_file.preset.run, ServeRun):
                continue
            if 2 * (count := parameter_count(preset_file.preset.model)) <= free:
                break
            sizes = f"{format_bytes(2 * count)} in bf16, {format_bytes(4 * count)} in fp32"
            return (
                f"{preset_file.preset.name} has {count / 1e9:.1f} billion parameters: {sizes}; {left}. Random weights, "
                "those on the meta device, and checkpoints in their own dtype take none of it"
            )
    is_little = engine == "cuda" and free < LEAST_HOST
    return f"engine cuda takes about {format_bytes(LEAST_HOST)} with a small model; {left}" if is_little else ""


def dry_run_of(command: JobCommand, device: Device, tools: RunTools, engine: Engine | None = None) -> JobTrace:
    """Dry run of a job that runs, or is about to, as if the GPU had all the memory one could ask for.

    Raises:
        UserError: it fails, or puts nothing on the GPU.
        CancelledError: it was cancelled.
    """
    job = DryRunJob(
        words=command.words,
        folder=command.folder,
        environment=command.environment,
        engine=engine,
        steps=STEPS,
        is_idle=True,
    )
    engine, _note = engine_of(job, tools)
    answer = dry_run(job, (replace(device, total_memory=NO_LIMIT[engine]), 1), engine, tools)
    if answer.result is None:
        raise UserError(answer.error)
    return JobTrace(preset=preset_of_command(command, answer.result), device=device, result=answer.result)


def dry_run(job: DryRunJob, gpu: tuple[Device, int], engine: Engine, tools: RunTools, full: str = "") -> GpuAnswer:
    """Run a prepared job on so many of one kind of GPU, with the engine that `engine_of` chose, or with engine `fake`
    because the host was too `full` for the other.

    Raises:
        UserError: the engine cannot run any job here.
        CancelledError: the job was cancelled.
    """
    device, count = gpu
    name = device.name if count == 1 else f"{count}x{device.name}"
    with (
        tempfile.TemporaryFile() as output,
        tempfile.TemporaryDirectory(prefix="vramtui-shared-", ignore_cleanup_errors=True) as shared,
    ):
        job = replace(job, shared=shared)
        how = job, device, count, tools, None if job.show_output else output
        try:
            result = _by_cuda(*how) if engine == "cuda" else _by_fake(*how)
        except TraceFailedError as failed:
            command = shlex.join(["vramtui", "dry-run", "--engine", "cuda", "--gpu", name, *job.words])
            needs = full or NEEDS_CUDA.format(command=command) * failed.beyond_trace
            lines = (*failed.output, *(f"  {frame}" for frame in failed.frames))
            return GpuAnswer(
                gpu=name, verdict="failed", error="; ".join(filter(None, (str(failed), needs))), output=lines
            )
        except UserError as error:
            output.seek(max(0, output.seek(0, os.SEEK_END) - MOST_PRINTED))
            refused = _REFUSED.search(printed := output.read().decode(errors="replace"))
            is_full = isinstance(error, HostFullError) or (engine == "cuda" and refused is not None)
            if is_full and engine == "cuda":
                full = f"with engine cuda {refused[0] if refused else error}"
                if job.engine is None:
                    return dry_run(replace(job, keyboard=None), gpu, "fake", tools, full)
                error = UserError(f"{full}; {WAYS}")
            lines, last = last_words(printed)
            # A job whose time was over has none in what it printed last, unless that is an exception.
            has_reason = last and not is_full and ("ended after" not in str(error) or _EXCEPTION.match(last))
            text, stated = "\n".join(lines), f"{error}: {last}" if has_reason else str(error)
            if _NO_NETWORK.search(last) and not job.keep_files:
                stated += "; a dry run has no network: get models and data first, or allow it with --keep-files"
            if _NO_SUCH_GPU.search(text):
                numbers = [int(one) for one in re.findall(r"\d+", ",".join(_ASKED_GPUS.findall(text)))]
                asked = f"GPU {max(numbers)}" if max(numbers, default=0) >= count else f"more than {count}"
                stated = f"the script asks for {asked}: --gpu {max(count, *numbers, 0) + 1}x{device.name}; {error}"
            return GpuAnswer(gpu=name, verdict="failed", error=stated, output=lines)
    if full:
        result = replace(result, warnings=(f"engine fake: {full}", *result.warnings))
    if not result.peak_allocated and not result.other and result.out_of_memory is None:
        why = next((one for one in (LISTENS, ONE_PROCESS) if one in "".join(result.warnings)), "it ran on the CPU")
        what = f"{printable(' '.join(job.words))} put nothing on the GPU: {why}"
        return GpuAnswer(gpu=name, verdict="failed", error=what)
    return GpuAnswer(gpu=name, verdict=result.verdict, result=result)


def last_words(printed: str) -> tuple[tuple[str, ...], str]:
    """The last lines of a failed job without its launcher's, and the one that says why: the first rank's of several."""
    lines = [printable(line) for line in printed.splitlines()]
    end = next((at for at, line in enumerate(lines) if _LAUNCHER.search(line)), len(lines))
    own = [line for line in _WARNING.sub("", "\n".join(lines[:end])).splitlines() if not _CLEAN_UP.match(line)]
    raised: dict[str | None, tuple[int, str]] = {}
    for at, line in enumerate(own):
        if (error := _EXCEPTION.fullmatch(line)) and not (raised and error[2].startswith("ERROR")):  # uvicorn's
            raised.pop(error[1], None)
            raised[error[1]] = at, error[2]
    at, reason = next((raised[rank] for rank in sorted(raised, key=bool, reverse=True)), (-NEAR, ""))
    if reason and (end < len(lines) or len(own) - at <= NEAR):
        return tuple(own[-OUTPUT_LINES:]), reason[:LONGEST]
    # A process whose output torchrun keeps in a file has its traceback in the table, if anything.
    listed = [line for line in lines[end:] if _EXCEPTION.fullmatch(line) and not _LAUNCHER.search(line)]
    shown = own if own and not listed else lines
    boxed = " ".join(line.strip(" │") for line in _BOXED.findall(printed)[-1:] for line in line.splitlines())
    return tuple(shown[-OUTPUT_LINES:]), (boxed or (listed or own or lines[end:][:1] or [""])[-1].strip())[:LONGEST]


def _by_cuda(job: DryRunJob, device: Device, count: int, tools: RunTools, output: IO[bytes] | None) -> DryRun:
    began, kills, again = time.monotonic(), kills_for_memory(), replace(job, keyboard=None)
    ran = run_cuda(job, device, count, tools, output)
    if ran.code == KILLED and not ran.ended_after:
        if kills and kills == kills_for_memory():
            raise UserError("the job was killed, by itself or by somebody: the host's memory did not run out")
        raise HostFullError("the job was killed, perhaps because the host's memory ran out")
    if job.other_way != "" or job.keep_files or ran.ended_after is not None:
        return results.with_rest(result_of(ran), None)
    try:
        seconds, own, limit = time.monotonic() - began, result_of(ran), max(CHEAP, job.timeout or 0)
    except UserError:
        if job.other_numbers == EMPTY or not any(place.is_open for place in ran.places):
            raise
        if job.other_numbers and any(place.takes_all for place in ran.places):
            with contextlib.suppress(UserError), tempfile.TemporaryFile() as unread:  # a mask may say what is over
                return _by_cuda(replace(again, other_numbers=EMPTY), device, count, tools, unread)
        if job.other_numbers:
            raise
        # It may have divided by a number that reads as zero, or taken its logarithm; a later failure is its own.
        with contextlib.ExitStack() as stack:
            if ran.steps:
                output = stack.enter_context(tempfile.TemporaryFile())
                stack.enter_context(contextlib.suppress(UserError))
            return _by_cuda(replace(again, other_numbers=NUMBERS[0][1]), device, count, tools, output)
        raise
    again = replace(again, timeout=2 * seconds + LONGER, other_way=None)

    def rerun(what: str, **how: str | bool) -> tuple[CudaRun, DryRun]:
        if tools.progress is not None:
            peak = own.peak_allocated
            tools.progress(Progress(phase=f"a run {what}", step=-1, allocated=peak, peak_allocated=peak, line=""))
        with tempfile.TemporaryFile() as unread:
            one = run_cuda(replace(again, **how), device, count, tools, unread)
        return one, result_of(one)

    if seconds < limit and (known := workspaces_on_card(ran)):
        again = replace(again, workspaces=known)
        with contextlib.suppress(UserError):
            on_card, result = rerun("with a GPU's workspaces")
            if on_card.ended_after is None and on_card.code == ran.code:
                ran, own = replace(on_card, without_device=own), result

    def vary(numbers: str) -> tuple[CudaRun, DryRun]:
        one, result = rerun("with other numbers", other_numbers=numbers)
        if own.events < MOST_EVENTS and one.requests != ran.requests and one.requests.keys() <= ran.requests.keys():
            return rerun("with other numbers", other_numbers=numbers)  # host and card race, and ranks to their end
        return one, result

    is_fixed = any(place.decides and place.is_fixed for place in ran.places)  # whatever else does
    like, is_proven = own, False
    if time.monotonic() - began + len(NUMBERS) * seconds < limit and any(place.is_open for place in ran.places):
        if not is_fixed:
            varied = with_other_numbers(vary)
            if varied and any(Path(job.shared).iterdir()):  # code that was compiled before leaves other gaps
                like = replace(own, peak_reserved=varied[0][1].peak_reserved)
            ran, is_proven = by_numbers(ran, like, varied)
        if job.other_numbers != EMPTY and any(place.takes_all and place.is_open for place in ran.places):
            with contextlib.suppress(UserError):
                ran = by_empty_masks(ran, like, rerun("with empty masks", other_numbers=EMPTY)[1])
    longer = None
    if own.cut_short and own.out_of_memory is None and time.monotonic() - began < limit:
        with contextlib.suppress(UserError):
            longer = rerun("of the rest of its epoch", rest=True)[1]
    others = dict(ran.other_ways)
    conditions = [place for place in ran.places if place.decides and place.is_condition and not place.takes_all]
    for place in conditions:
        if time.monotonic() - began > limit:
            break
        tried: list[DryRun] = []
        for every in (1, 2, 0) if loop_lines(place.path).get(place.line) else (1, 2):  # 0: the loop goes on
            if every != 2 or not tried:  # a job that fails if it always goes that way may not each second time
                with contextlib.suppress(UserError):
                    way = f"{every}:{place.path}:{place.line}"
                    tried.append(rerun(f"the other way of line {place.line}", other_way=way)[1])
        if ended := [one for one in tried or [own] * is_proven if one.ended_after is None]:  # own: no number decides
            both, mid = (others.get(place, ended[0]), *ended), own.peak_allocated  # a higher one is worth more
            others[place] = max(both, key=lambda one: (one.peak_allocated > mid, abs(one.peak_allocated - mid)))
    free = [place for place in conditions if place in others and results.is_alike(like, others[place])]
    places = tuple(replace(place, decides=place.decides and place not in free) for place in ran.places)
    return results.with_rest(result_of(replace(ran, places=places, other_ways=others)), longer)


def _by_fake(job: DryRunJob, device: Device, count: int, tools: RunTools, output: IO[bytes] | None) -> DryRun:
    command = jobs.job_command(job.words, job.folder, job.environment)
    if (name := Path(command.script).name.partition(".")[0]) in {"vllm", "sglang"}:  # a program or a module
        raise UserError(
            f"engine fake cannot run {name}, which has kernels of its own: engine cuda on a larger host can"
        )
    jobs.interpreter_at(command.python, command.environment).checked("fake")
    conf = command.environment.get("PYTORCH_ALLOC_CONF") or command.environment.get("PYTORCH_CUDA_ALLOC_CONF") or ""
    request = TraceRequest(
        path=command.script,
        is_module=command.is_module,
        arguments=command.arguments,
        ranks=command.ranks,
        device=device,
        steps=job.steps or NO_END,
        alloc_conf=conf,
        keep_files=job.keep_files,
    )
    python = replace(job, words=(command.python,), folder=command.folder, environment=command.environment)
    return replace(run_fake(request, python, output, tools), engine="fake", gpus=count)
