"""Memory that ran out outside a framework's pool: of CUDA's libraries, of the host, of a kernel's block."""

import re
from collections.abc import Callable

from vramtui.core.base.units import KIB, format_bytes
from vramtui.core.observation.oom.messages import OomMessage, bytes_of, wording
from vramtui.core.observation.oom.report import OomCause, OomReport

_LIBRARIES = (
    ("cuBLAS", "CUBLAS_STATUS_ALLOC_FAILED"),
    ("cuDNN", "CUDNN_STATUS_ALLOC_FAILED"),
    ("cuSOLVER", "CUSOLVER_STATUS_ALLOC_FAILED"),
    ("cuSPARSE", "CUSPARSE_STATUS_ALLOC_FAILED"),
    ("cuFFT", "CUFFT_ALLOC_FAILED"),
    ("NCCL", r"NCCL WARN Cuda failure[^\n]{0,20}'out of memory'"),
    ("CUDA", "CUDA error: out of memory"),
    ("CUDA", "CUDA driver error: out of memory"),
    ("CUDA", "CUDA_ERROR_OUT_OF_MEMORY"),
    ("CUDA", "cudaErrorMemoryAllocation"),
    ("CUDA", r"cuda runtime error \(2\) ?: out of memory"),
)
_BLOCK = re.compile(r"out of resource: shared memory, Required: (\d{1,15}), Hardware limit: (\d{1,15})")

_HOST = wording(
    r"(?:DefaultCPUAllocator: (?:can't allocate memory|not enough memory): you tried to allocate"
    r"|insufficient memory \(attempted to allocate|Unable to allocate) SIZE(?:\)| for an array|\.)"
)
_KILLED = re.compile(
    r"[Oo]ut of memory: Kill(?:ed)? process (\d{1,15}) \(([^)\n]{0,64})\)(?:[^\n]{0,300}?anon-rss:(\d{1,15})kB)?"
)
_CGROUP = re.compile(r"oom[-_]kill event|oom-kill:constraint|OOMKilled|[Ee]xceeded (?:job )?memory limit")
# The last three are of aten/src/ATen/MapAllocator.cpp, PyTorch 2.13: a file in /dev/shm that finds no room there.
_WORKERS = re.compile(
    r"DataLoader worker \(pid[^)\n]{0,40}\) is killed by signal: Bus error|insufficient shared memory \(shm\)"
    r"|unable to (?:allocate shared memory\(shm\) for|write to|resize) file <[^>\n]{0,4096}>[^\n]{0,80}"
    r"No space left on device"
)
# Of Linux (errno 12), Python and C++. llama.cpp's "failed to mlock" with the same words is a warning, and not here.
_NO_MEMORY = re.compile(
    r"\[Errno 12\] Cannot allocate memory|Cannot allocate memory \(12\)|fork: Cannot allocate memory"
    r"|^MemoryError$|std::bad_alloc",
    re.MULTILINE,
)
# What a shell, torchrun, a container and PyTorch's DataLoader say of a process that signal 9 ended. A line that is
# no more than "Killed" is the shell's; in the middle of a line the word may be any program's.
_SIGKILL = re.compile(
    r"exitcode *: -9\b|SIGKILL|exit code:? 137\b|is killed by signal: Killed"
    r"|^(?:\[\d{1,9}\][+-]?\s{1,9}|zsh: |[^\s:]{1,4096}: line \d{1,9}: {1,9}\d{1,15} )?[Kk]illed"
    r"(?: {2,40}[^\n]{0,4096})?$",
    re.MULTILINE,
)


def _library(name: str) -> Callable[[str, "re.Match[str]"], OomReport]:
    """A failure of a CUDA library, or of CUDA itself; none says how much it asked for."""
    return _always(
        name,
        "outside",
        f"Outside the framework's cache: {name} had no room for memory of its own on the GPU",
        (
            "The card was full, of what the framework keeps or of other processes: a smaller batch or"
            " torch.cuda.set_per_process_memory_fraction(0.95) leaves room; `vramtui ps` shows who holds what."
        ),
    )


def _block(_log: str, match: "re.Match[str]") -> OomReport:
    asked, most = int(match[1]), int(match[2])
    sentences = (
        (
            f"Not GPU memory: a Triton kernel asks for {asked:,} bytes of shared memory for a block, and this GPU has"
            f" {most:,}"
        ),
        "Smaller block sizes or fewer num_stages make it fit; free memory has no part in it.",
    )
    return OomReport(program="Triton", asked=asked, limit=most, known_cause="shared memory", own_sentences=sentences)


def _host(_log: str, match: "re.Match[str]") -> OomReport:
    asked = bytes_of(match[1])
    sentences = (f"Not GPU memory: the host had no {format_bytes(asked, 2)} left for the process",)
    return OomReport(program="the host", asked=asked, known_cause="host", own_sentences=sentences)


def _killed(_log: str, match: "re.Match[str]") -> OomReport:
    memory = {} if match[3] is None else {f"pid {match[1]} on the host": int(match[3]) * KIB}
    size = "" if match[3] is None else f", which held {format_bytes(int(match[3]) * KIB, 2)}"
    sentences = (
        f"Not GPU memory: the kernel ended {match[2]} (pid {match[1]}){size}, because the host's memory ran out",
    )
    return OomReport(program="the kernel", held=memory, known_cause="host", own_sentences=sentences)


def _always(program: str, cause: OomCause, *sentences: str) -> Callable[[str, "re.Match[str]"], OomReport]:
    """A finding for a message that says nothing but that memory ran out."""
    return lambda _log, _match: OomReport(program=program, known_cause=cause, own_sentences=sentences)


BLOCKS_AND_HOST = (
    OomMessage(_BLOCK, _block),
    OomMessage(_HOST, _host),
    OomMessage(_KILLED, _killed),
    OomMessage(
        _CGROUP,
        _always(
            "the kernel",
            "host",
            "Not GPU memory: the job's share of the host's memory ran out, a limit of Slurm or of its container",
            "Slurm's --mem, a container's --memory or a pod's limit sets it.",
        ),
    ),
    OomMessage(
        _WORKERS,
        _always(
            "DataLoader",
            "host",
            "Not GPU memory: /dev/shm is full, through which DataLoader's workers hand over their batches",
            "docker run --shm-size=8g or --ipc=host gives it more; a smaller num_workers needs less.",
        ),
    ),
)
LIBRARIES = tuple(OomMessage(re.compile(pattern), _library(name)) for name, pattern in _LIBRARIES)
WITHOUT_FIGURES = (
    OomMessage(
        _NO_MEMORY, _always("the host", "host", "Not GPU memory: the host had no memory left to give to the process")
    ),
    OomMessage(
        _SIGKILL,
        _always(
            "the kernel",
            "host",
            "Ended by SIGKILL, without a word of GPU memory: most often because the host's ran out",
            "`dmesg | grep -i 'killed process'` on that host tells whether it did.",
        ),
    ),
)
