"""Memory that ran out elsewhere than in PyTorch: of CUDA's libraries, of the host, of a kernel's block; and what JAX,
TensorFlow and CuPy write when an array does not fit.

jaxlib 0.1 to 0.6 (xla/service/buffer_assignment.cc prints the parts), TensorFlow 1.x to 2.18 (bfc_allocator.cc,
framework/op_kernel.cc), CuPy (cupy/cuda/memory.pyx).
"""

import math
import re
from typing import Any

from vramtui.core.base.units import KIB, TORCH_ITEM_BYTES, format_bytes
from vramtui.core.observation.oom.messages import OomMessages, bytes_of, message_at, wording
from vramtui.core.observation.oom.report import Way

ARRAYS, BLOCKS_AND_HOST, LIBRARIES, WITHOUT_FIGURES = OomMessages(), OomMessages(), OomMessages(), OomMessages()

_XLA_SIZE = r"(\d{1,15}(?:\.\d{1,12})? ?[KMGT]?i?B)"
_XLA_ASKED = r"(\d{1,15}(?:\.\d{1,12})? ?(?:[KMGT]?i?B|bytes))"
_XLA_PARTS = {
    "arguments": re.compile(rf"parameter allocation: +{_XLA_SIZE}"),
    "constants": re.compile(rf"constant allocation: +{_XLA_SIZE}"),
    "results": re.compile(rf"maybe_live_out allocation: +{_XLA_SIZE}"),
    "temporary": re.compile(rf"preallocated temp allocation: +{_XLA_SIZE}"),
}

_LIMIT = re.compile(r"\bLimit: +(\d{1,15})")
_IN_USE = re.compile(r"\bInUse: +(\d{1,15})")
# TensorFlow's own names of types, beside those that it shares with torch (2.x, tensorflow/core/framework/types.cc).
_OWN_NAMES = {"float": "float32", "half": "float16", "double": "float64"}
_WIDTHS = {
    **TORCH_ITEM_BYTES,
    **{own: TORCH_ITEM_BYTES[name] for own, name in _OWN_NAMES.items()},
    "uint32": 4,
    "uint64": 8,
    "complex128": 16,
}


@ARRAYS.reads(re.compile(rf"Failed to allocate request for {_XLA_ASKED}"), "XLA")
# TensorFlow's pool writes "ran out of memory trying to allocate", and then more than XLA does.
@ARRAYS.reads(re.compile(rf"(?<!ran out )of memory (?:while )?(?:trying to allocate|allocating) {_XLA_ASKED}"), "XLA")
def xla(text: str, match: "re.Match[str]") -> dict[str, Any]:
    message, asked = message_at(text, match.start()), bytes_of(match[1])
    parts = {name: part.search(message) for name, part in _XLA_PARTS.items()}
    memory = {name: bytes_of(size[1]) for name, size in parts.items() if size is not None}
    wanted = f"{format_bytes(asked, 2)} was requested"
    return {
        "asked": asked,
        "held": {name: size for name, size in memory.items() if size},
        "headline": f"Not enough memory: {wanted}; the message does not state what was free",
    }


def _pool(text: str, asked: int | None, gpu: int | None, what: str) -> dict[str, Any]:
    """A request of `asked` bytes for `what` that TensorFlow's pool could not serve; the log tells its size, or not."""
    limit, in_use = _LIMIT.search(text), _IN_USE.search(text)
    free = None if limit is None or in_use is None else max(int(limit[1]) - int(in_use[1]), 0)
    in_pieces = free is not None and asked is not None and free >= asked
    sentence = f"{format_bytes(asked, 2)} was requested{f' ({what})' if what else ''}"
    if free is not None:
        sentence += f" and {format_bytes(free, 2)} of TensorFlow's pool was free"
    joined = Way("TF_GPU_ALLOCATOR=cuda_malloc_async joins free pieces", free)
    headline = (
        f"Fragmentation: {sentence}, in pieces that are too small" if in_pieces else f"Not enough memory: {sentence}"
    )
    return {
        "gpu": gpu, "asked": asked, "asked_for": what, "free": free,
        "limit": None if limit is None else int(limit[1]),
        "held": {} if in_use is None else {"in use": int(in_use[1])},
        "known_cause": "fragmentation" if in_pieces else "not enough memory", "headline": headline,
        "own_ways": (joined,) if in_pieces else (),
    }  # fmt: skip


# A caller of TensorFlow's pool that can do with less says "with freed_by_count", and nothing has failed then.
@ARRAYS.reads(
    wording(
        r"Allocator \(GPU_(\d{1,15})_bfc\) ran out of memory trying to allocate SIZE(?: \(rounded to (\d{1,15})\))?"
        r"(?! with freed_by_count)(?!\. The caller indicates)"
    ),
    "TensorFlow",
)
def bfc(text: str, match: "re.Match[str]") -> dict[str, Any]:
    return _pool(text, int(match[3]) if match[3] else bytes_of(match[2]), int(match[1]), "")


@ARRAYS.reads(
    re.compile(
        r"OOM when allocating tensor with shape ?\[([\d,]{1,200})\] and type (\w+)"
        r"(?: on \S{0,200}?device:(GPU|CPU):(\d{1,15}))?"
    ),
    "TensorFlow",
)
def tensor(text: str, match: "re.Match[str]") -> dict[str, Any]:
    shape, kind, where, number = match.groups()
    width = _WIDTHS.get(kind)
    asked = None if width is None else width * math.prod(int(size) for size in shape.split(",") if size)
    what = f"a tensor [{shape}] of {kind}"
    if where == "CPU":
        headline = f"Not GPU memory: the host had less than {format_bytes(asked, 2)} left for {what}"
        return {"asked": asked, "asked_for": what, "known_cause": "host", "headline": headline}
    return _pool(text, asked, None if number is None else int(number), what)


@ARRAYS.reads(
    wording(
        r"Out of memory allocating ([\d,]{1,30}) bytes"
        r"(?: \(allocated so far: ([\d,]{1,30}) bytes(?:, limit set to: ([\d,]{1,30}) bytes)?)?"
    ),
    "CuPy",
)
def cupy(_log: str, match: "re.Match[str]") -> dict[str, Any]:
    asked, so_far, limit = (None if size is None else bytes_of(size) for size in match.groups())
    within = "" if limit is None else f" within the pool's limit of {format_bytes(limit, 2)}"
    return {
        "asked": asked,
        "limit": limit,
        "held": {} if so_far is None else {"CuPy's pool": so_far},
        "headline": f"Not enough memory: {format_bytes(asked, 2)} was requested in one piece{within}",
    }


_FOR_THE_HOST = (
    "Fewer DataLoader workers, or a smaller prefetch_factor",
    "Load weights with low_cpu_mem_usage or from safetensors, and let only one rank per host load them",
    "More memory for the job: Slurm's --mem, docker's --memory, a pod's limit",
)


@BLOCKS_AND_HOST.reads(
    re.compile(r"out of resource: shared memory, Required: (\d{1,15}), Hardware limit: (\d{1,15})"),
    "Triton",
    "shared memory",
)
def block(_log: str, match: "re.Match[str]") -> dict[str, Any]:
    asked, most = int(match[1]), int(match[2])
    needs = f"a Triton kernel needs {asked:,} bytes of shared memory per block, this GPU has {most:,}"
    ways = ("Smaller block sizes, or fewer num_stages; free GPU memory does not matter",)
    return {"asked": asked, "limit": most, "headline": f"Not GPU memory: {needs}", "own_ways": ways}


@BLOCKS_AND_HOST.reads(
    wording(
        r"(?:DefaultCPUAllocator: (?:can't allocate memory|not enough memory): you tried to allocate"
        r"|insufficient memory \(attempted to allocate|Unable to allocate) SIZE(?:\)| for an array|\.)"
    ),
    "the host",
    "host",
)
def host(_log: str, match: "re.Match[str]") -> dict[str, Any]:
    asked = bytes_of(match[1])
    headline = f"Not GPU memory: the host had less than {format_bytes(asked, 2)} left for the process"
    return {"asked": asked, "headline": headline, "own_ways": _FOR_THE_HOST}


@BLOCKS_AND_HOST.reads(
    re.compile(
        r"[Oo]ut of memory: Kill(?:ed)? process (\d{1,15}) \(([^)\n]{0,64})\)(?:[^\n]{0,300}?anon-rss:(\d{1,15})kB)?"
    ),
    "the kernel",
    "host",
)
def killed(_log: str, match: "re.Match[str]") -> dict[str, Any]:
    size = "" if match[3] is None else f", which held {format_bytes(int(match[3]) * KIB, 2)}"
    return {
        "held": {} if match[3] is None else {f"pid {match[1]} on the host": int(match[3]) * KIB},
        "headline": f"Not GPU memory: the host's memory ran out and the kernel ended {match[2]} (pid {match[1]}){size}",
        "own_ways": _FOR_THE_HOST,
    }


BLOCKS_AND_HOST.states(
    re.compile(r"oom[-_]kill event|oom-kill:constraint|OOMKilled|[Ee]xceeded (?:job )?memory limit"),
    "the kernel",
    "host",
    "Not GPU memory: the job used up its share of the host's memory, a limit of Slurm or of its container",
    "Raise the limit: Slurm's --mem, docker's --memory, a pod's resources.limits.memory",
    "Fewer DataLoader workers, or a smaller prefetch_factor",
)
# The last three are of aten/src/ATen/MapAllocator.cpp, PyTorch 2.13: a file in /dev/shm that finds no room there.
BLOCKS_AND_HOST.states(
    re.compile(
        r"DataLoader worker \(pid[^)\n]{0,40}\) is killed by signal: Bus error|insufficient shared memory \(shm\)"
        r"|unable to (?:allocate shared memory\(shm\) for|write to|resize) file <[^>\n]{0,4096}>[^\n]{0,80}"
        r"No space left on device"
    ),
    "DataLoader",
    "host",
    "Not GPU memory: /dev/shm is full, which DataLoader's workers use to pass batches",
    "docker run --shm-size=8g, or --ipc=host",
    "A smaller num_workers",
)
RUST = OomMessages()
RUST.states(
    re.compile(r"DriverError\(CUDA_ERROR_OUT_OF_MEMORY"),
    "a Rust program",
    "not enough memory",
    "Not enough memory: the CUDA driver refused an allocation of a Rust program, which states no sizes",
)
for _name, _pattern in (
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
):
    LIBRARIES.states(
        re.compile(_pattern),
        _name,
        "outside",
        f"The GPU was full: {_name} could not allocate memory of its own, outside the framework's cache",
    )
LIBRARIES.states(
    re.compile(r"cuda runtime error \(2\) ?: out of memory"),
    "PyTorch",
    "not enough memory",
    "Not enough memory: this old PyTorch states no sizes",
)
LIBRARIES.states(
    re.compile(r"CUDA error: out of memory at \S{0,400}cumem_allocator", re.IGNORECASE),
    "vLLM",
    "not enough memory",
    "Not enough memory: vLLM's sleep mode could not take back its memory as it woke up",
    "Free the trainer's cache before wake_up(): torch.cuda.empty_cache()",
    "Lower gpu_memory_utilization, so that both parts fit together",
)
LIBRARIES.states(
    re.compile(
        r"llama runner (?:exited, you may not have enough|process has terminated:[^\n]{0,80}unable to allocate)"
    ),
    "Ollama",
    "not enough memory",
    "Not enough memory: Ollama could not load the model; it states no sizes",
)
# Of Linux (errno 12), Python and C++. llama.cpp's "failed to mlock" with the same words is a warning, and not here.
WITHOUT_FIGURES.states(
    re.compile(
        r"\[Errno 12\] Cannot allocate memory|Cannot allocate memory \(12\)|fork: Cannot allocate memory"
        r"|^MemoryError$|std::bad_alloc",
        re.MULTILINE,
    ),
    "the host",
    "host",
    "Not GPU memory: the host had no memory left for the process",
    *_FOR_THE_HOST,
)
# Messages of a shell, torchrun, a container and PyTorch's DataLoader about a process that signal 9 ended. A line of
# no more than "Killed" is the shell's; in the middle of a line the word may be any program's.
WITHOUT_FIGURES.states(
    re.compile(
        r"exitcode *: -9\b|SIGKILL|exit code:? 137\b|is killed by signal: Killed"
        r"|^(?:\[\d{1,9}\][+-]?\s{1,9}|zsh: |[^\s:]{1,4096}: line \d{1,9}: {1,9}\d{1,15} )?[Kk]illed"
        r"(?: {2,40}[^\n]{0,4096})?$",
        re.MULTILINE,
    ),
    "the kernel",
    "host",
    "Not GPU memory: the process was ended by SIGKILL, most often because the host's memory ran out",
    "`dmesg | grep -i 'killed process'` on that host shows whether it did",
    *_FOR_THE_HOST,
)
