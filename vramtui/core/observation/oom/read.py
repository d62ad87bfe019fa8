"""The out-of-memory message that counts in a log or a paste, whoever wrote it, and PyTorch's own."""

import re
from typing import Any

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.units import MIB
from vramtui.core.observation.oom.context import job_of, user_line
from vramtui.core.observation.oom.report import OomMessage, OomMessages, OomReport, bytes_of, last, message_at, wording
from vramtui.core.observation.oom.servers import ARRAYS, BLOCKS_AND_HOST, LIBRARIES, RUST, SERVERS, WITHOUT_FIGURES

_FIGURES = {
    "total": (wording(r"total capaci?ty of SIZE"), wording(r"SIZE total capacity")),
    "free": (wording(r"of which SIZE is free"), wording(r"SIZE free;")),
    "limit": (wording(r"SIZE allowed"),),
    "in_use": (wording(r"this process has SIZE memory in use"),),
    "allocated": (wording(r"SIZE is allocated by PyTorch"), wording(r"SIZE already allocated")),
    "graphs": (wording(r"with SIZE allocated in private pools"),),
    "unallocated": (wording(r"SIZE is reserved by PyTorch but unallocated"),),
    "reserved": (wording(r"SIZE reserved in total by PyTorch"), wording(r"SIZE cached\)")),
}
_PROCESS = wording(r"Process (\d{1,15}) has SIZE memory in use")
_GPU = re.compile(r"GPU (\d{1,15})")
_SETTING = re.compile(r"PYTORCH_(?:CUDA_|HIP_)?ALLOC_CONF")
_WARNED = re.compile(r"retrying without pipeline parallelism")
_MPS = wording(r"MPS allocated: SIZE, other allocations: SIZE(?:, max allowed: SIZE)?\)\. Tried to allocate SIZE")
_MPS_UNIT = re.compile(r"\b([KMG])B")

# NVML says "not available" as 2^64 - 1, which PyTorch prints as 17179869184.00 GiB; no process holds a PiB.
_MOST_PLAUSIBLE = 1 << 50


PYTORCH = OomMessages()


def _processes(message: str, own: int | None, reserved: int) -> tuple[int | None, dict[int, int | None]]:
    """Return the bytes of the process itself, and of the other processes by pid.

    "0 bytes", and NVML's "not available", which PyTorch prints as 17179869184.00 GiB, mean that the size is unknown. In
    a container with its own pids PyTorch cannot recognise itself (it compares NVML's pid with `getpid`): it is the one
    with the least memory among those that hold at least what PyTorch has reserved.
    """
    named: dict[int, int | None] = {}
    for pid, text in _PROCESS.findall(message):
        size = bytes_of(text)
        named[int(pid)] = size if size is not None and 0 < size < _MOST_PLAUSIBLE else None
    if "this process has" not in message and reserved:
        rounding = max(reserved // 100, MIB)
        sizes = {pid: size for pid, size in named.items() if size is not None and size >= reserved - rounding}
        if sizes:
            itself = min(sizes, key=lambda pid: sizes[pid])
            del named[itself]
            return sizes[itself], named
    return (own if own is not None and 0 < own < _MOST_PLAUSIBLE and own >= reserved // 2 else None), named


@PYTORCH.reads(wording(r"Tried to allocate SIZE"), cause=None)
def pytorch(text: str, match: "re.Match[str]") -> dict[str, Any]:
    message = message_at(text, match.start())
    if mps := _MPS.search(message):
        mine, outside, most, wanted = (
            None if size is None else bytes_of(_MPS_UNIT.sub(r"\1iB", size)) for size in mps.groups()
        )
        report: dict[str, Any] = {"program": "MPS", "asked": wanted, "allocated": mine}
        if mine is None or most is None:
            return report
        free = max(most - mine - (outside or 0), 0)
        return report | {"limit": most, "free": free, "unallocated": 0, "known_cause": "not enough memory"}
    figures: dict[str, int | None] = {
        name: next((bytes_of(size[1]) for one in wordings if (size := one.search(message))), None)
        for name, wordings in _FIGURES.items()
    }
    allocated, unallocated, reserved = figures["allocated"], figures["unallocated"], figures.pop("reserved")
    graphs = figures.pop("graphs")
    if unallocated is None and reserved is not None and allocated is not None:
        unallocated = max(reserved - allocated, 0)
    in_use, others = _processes(message, figures["in_use"], (allocated or 0) + (unallocated or 0))
    gpu, setting = _GPU.search(message), _SETTING.search(message)
    fields: dict[str, Any] = {
        **figures,
        "gpu": None if gpu is None else int(gpu[1]),
        "asked": bytes_of(match[1]),
        "in_use": in_use,
        "unallocated": unallocated,
        "others": others,
        "held": {} if graphs is None else {"in CUDA graphs' pools": graphs},
        "setting": setting[0] if setting is not None else OomReport().setting,
    }
    return fields


# cudaMallocAsync's (c10/cuda/CUDAMallocAsyncAllocator.cpp, PyTorch 2.x); its driver's pool has no part that is known.
@PYTORCH.reads(
    wording(
        r"Allocation on device (\d{1,15}) would exceed allowed memory\. \(out of memory\)"
        r" Currently allocated ?: SIZE Requested ?: SIZE Device limit ?: SIZE Free \(according to CUDA\) ?: SIZE"
        r"(?: PyTorch limit \(set by user-supplied memory fraction\) ?: SIZE)?"
    )
)
def cuda_malloc_async(_log: str, match: "re.Match[str]") -> dict[str, Any]:
    allocated, asked, total, free, limit = (None if size is None else bytes_of(size) for size in match.groups()[1:])
    return {
        "gpu": int(match[1]),
        "asked": asked,
        "total": total,
        "free": free,
        "limit": limit if limit is not None and total is not None and limit < total else None,
        "allocated": allocated,
        # The driver's pool may hold any part of what is neither free nor allocated.
        "known_cause": "not enough memory" if asked is None or total is None or asked <= total else None,
    }


# ComfyUI prints only the first words of the message; its report has the GPU's sizes under "Devices".
PYTORCH.states(
    re.compile(r"Allocation on device(?! \d{1,15} would)"),
    "ComfyUI",
    "not enough memory",
    "Not enough memory: the model and its activations did not fit; the message does not state the request",
)


# Messages with figures explain those that follow from them, such as NCCL's failure and the launcher's SIGKILL.
_BY_WEIGHT = ((*PYTORCH, *SERVERS, *ARRAYS), BLOCKS_AND_HOST, RUST, LIBRARIES, WITHOUT_FIGURES)
_NO_FAILURE = re.compile(r"The caller indicates that this is not a failure")
_ANY = re.compile(
    r"out of memory|RESOURCE_EXHAUSTED|Resource exhausted|OutOfMemoryError|OutOfDeviceMemory", re.IGNORECASE
)


def read_oom(text: str) -> OomReport:
    """Explain the last out-of-memory message in a log or a paste; one with figures before one without. Raises UserError
    if there is none, or nothing failed.
    """
    latest = _latest(text)
    if (latest is None or latest[0] > 0) and "\\n" in text:
        unescaped = text.replace("\\n", "\n")  # a message inside a Rust panic or a JSON log
        if (other := _latest(unescaped)) is not None and (latest is None or other[0] < latest[0]):
            text, latest = unescaped, other
    if latest is None:
        if _NO_FAILURE.search(text):
            raise UserError("TensorFlow only warns that it would be faster with more memory; nothing failed")
        if not _ANY.search(text):
            raise UserError(
                "no out-of-memory message found; messages of PyTorch, vLLM, SGLang, TGI, llama.cpp, Ollama, ComfyUI,"
                " TensorRT-LLM, JAX, TensorFlow, CuPy, CUDA's libraries, the kernel, Slurm and containers are known"
            )
        latest = (len(_BY_WEIGHT), None, None)
    _, match, message = latest
    if match is not None and (retry := _WARNED.search(text, match.start())) and _latest(text[retry.end() :]) is None:
        raise UserError("llama.cpp retried without pipeline parallelism and went on; nothing failed")
    job = job_of(text)
    report = OomReport(program=job.program or "the program")
    if message is not None and match is not None:
        report = message.report(text, match)
    # PyTorch, CUDA and their libraries run inside of other programs, whose users need that program's own options.
    program = job.program if job.program and report.program in _INSIDE else report.program
    if program == "Ollama" and report.program == "llama.cpp":  # llama.cpp's options do not exist in Ollama
        report = msgspec.structs.replace(report, own_ways=())
    return msgspec.structs.replace(
        report,
        program=program,
        gpu_name=job.gpu_name,
        rank=job.rank,
        total=report.total if report.total is not None else job.total if report.of_gpu_memory else None,
        free=report.free if report.free is not None else job.free if report.of_gpu_memory else None,
        line=user_line(text if match is None else text[: match.start()]),
        command=job.command,
        windows=job.windows,
    )


_INSIDE = {"PyTorch", "CUDA", "cuBLAS", "cuDNN", "cuSOLVER", "cuSPARSE", "cuFFT", "ComfyUI", "llama.cpp", "the program"}


def _latest(text: str) -> "tuple[int, re.Match[str] | None, OomMessage | None] | None":
    """The weight, place and kind of the message that counts."""
    for weight, messages in enumerate(_BY_WEIGHT):
        places = ((match, message) for message in messages if (match := last(message.pattern, text, len(text))))
        latest = max(places, key=lambda place: place[0].start(), default=None)
        if latest is not None:
            return weight, *latest
    return None
