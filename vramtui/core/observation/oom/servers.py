"""Messages of servers when a model does not fit, and of memory that ran out elsewhere than in PyTorch.

vLLM 0.2 to 0.24 (v1/core/kv_cache_utils.py, v1/worker/gpu_worker.py), SGLang 0.1 to 0.5 (model_executor, mem_cache),
llama.cpp of 2024 to 2026 (ggml/src/ggml-alloc.c, ggml-cuda.cu; src/llama-kv-cache.cpp), which Ollama passes on; jaxlib
0.1 to 0.6 (xla/service/buffer_assignment.cc prints the parts), TensorFlow 1.x to 2.18 (bfc_allocator.cc,
framework/op_kernel.cc), CuPy (cupy/cuda/memory.pyx), CUDA's libraries, the host, and a kernel's block. The wordings
are those of logs in their trackers.
"""

import math
import re
from typing import Any

from vramtui.core.base.units import KIB, MIB, TORCH_ITEM_BYTES, format_bytes
from vramtui.core.observation.oom.advice import WAIT
from vramtui.core.observation.oom.report import DESKTOP, OomMessages, Way, bytes_of, gib, last, message_at, wording

_COUNT = r"(\d{1,15})"
_NUMBER = r"(\d{1,12}(?:\.\d{1,12})?)"

SERVERS = OomMessages()
_VLLM_HELD = {
    "weights": wording(rf"(?:model weights take|Model loading took|Loading model weights took) {_NUMBER} ?Gi?B"),
    "activations": wording(rf"activation peak memory takes {_NUMBER} ?GiB"),
    "CUDA graphs": wording(rf"Estimated CUDA graph memory: {_NUMBER} GiB"),
    "outside PyTorch": wording(rf"non_torch_memory takes {_NUMBER} ?GiB"),
}
_LEFT = wording(r"(?:reserved for KV Cache is|Available KV cache memory:) (-?\d{1,12}(?:\.\d{1,12})?) ?GiB")
_LONGEST = wording(rf"estimated maximum model length is {_COUNT}")
_BUDGET = wording(rf"gpu_memory_utilization \({_NUMBER}\) = {_NUMBER} ?GiB")
# vLLM's own help names what each takes (vllm/engine/arg_utils.py).
_FOR_THE_CACHE = (
    "--kv-cache-dtype fp8 halves the KV cache",
    "Raise --gpu-memory-utilization if the GPU has room, or --tensor-parallel-size",
)


def _vllm_holds(text: str, match: "re.Match[str]") -> dict[str, int]:
    sizes = {name: last(pattern, text, match.start()) for name, pattern in _VLLM_HELD.items()}
    return {name: gib(size[1]) for name, size in sizes.items() if size is not None}


@SERVERS.reads(
    wording(
        rf"max seq len \({_COUNT}\) is larger than the maximum number of tokens that can be stored in KV cache"
        rf" \({_COUNT}\)"
    ),
    "vLLM",
)
def longer_than_the_pool(text: str, match: "re.Match[str]") -> dict[str, Any]:
    wanted, fits = int(match[1]), int(match[2])
    return {
        "held": _vllm_holds(text, match),
        "pool": (wanted, fits),
        "headline": f"Not enough memory: the KV cache holds {fits:,} tokens and --max-model-len is {wanted:,}",
        "own_ways": (f"--max-model-len {fits} fits", *_FOR_THE_CACHE),
    }


@SERVERS.reads(
    wording(
        rf"max seq len \({_COUNT}\), \(?{_NUMBER} GiB KV cache is needed, which is larger than the available KV cache"
        rf" memory \((-?\d{{1,12}}(?:\.\d{{1,12}})?) GiB"
    ),
    "vLLM",
)
def one_sequence(text: str, match: "re.Match[str]") -> dict[str, Any]:
    wanted, needed, left = int(match[1]), float(match[2]), float(match[3])
    longest = _LONGEST.search(text, match.end(), match.end() + 400)
    # Without an estimate of vLLM's own, each token is taken to need the same.
    fits = int(longest[1]) if longest is not None else int(wanted * left / needed) if min(needed, left) > 0 else 0
    first = f"--max-model-len {fits} fits" if longest else f"--max-model-len {fits} (about) fits"
    return {
        "asked": gib(match[2]),
        "asked_for": "the KV cache",
        "held": _vllm_holds(text, match),
        "pool": (wanted, fits) if longest is not None else None,
        "headline": f"Not enough memory: {wanted:,} tokens need {needed:.2f} GiB of KV cache and {left:.2f} GiB is left"
        " for it",
        "own_ways": (*((first,) if fits else ()), *_FOR_THE_CACHE),
    }


@SERVERS.reads(
    wording(
        rf"Free memory on device(?: \S+)? \({_NUMBER}/{_NUMBER} GiB\) on startup is less than desired GPU memory"
        rf" utilization \({_NUMBER}, {_NUMBER} GiB\)"
    ),
    "vLLM",
)
def too_little_at_the_start(text: str, match: "re.Match[str]") -> dict[str, Any]:
    free, total, share, wanted = match.groups()
    shown = f"{math.floor(float(free) / max(float(total), 1e-9) * 100) / 100:.2f}"
    who = "Another process" if gib(total) - gib(free) > DESKTOP else "Not enough memory"
    return {
        "asked": gib(wanted),
        "asked_for": "vLLM's share of the GPU",
        "total": gib(total),
        "free": gib(free),
        "held": _vllm_holds(text, match),
        "known_cause": who.lower(),
        "headline": f"{who}: vLLM wants {wanted} of {total} GiB at its start (--gpu-memory-utilization {share}),"
        f" {free} GiB is free",
        "own_ways": (f"--gpu-memory-utilization {shown} uses what is free", WAIT),
    }


@SERVERS.reads(wording(r"No available memory for the cache blocks\."), "vLLM")
def no_blocks(text: str, match: "re.Match[str]") -> dict[str, Any]:
    budget, left = last(_BUDGET, text, match.start()), last(_LEFT, text, match.start())
    within = "" if budget is None else f" {budget[1]}, which is {budget[2]} GiB"
    missing = "" if left is None else f"; {left[1]} GiB is left for it"
    return {
        "held": _vllm_holds(text, match),
        "headline": "Not enough memory: the model leaves nothing for the KV cache within"
        f" --gpu-memory-utilization{within}{missing}",
        "own_ways": (
            "Raise --gpu-memory-utilization if the GPU has room",
            "Lower --max-num-batched-tokens or --max-num-seqs: the profiling pass takes less",
            "A quantized model, or more GPUs with --tensor-parallel-size",
        ),
    }


# vllm/v1/worker/gpu_model_runner.py, `_dummy_sampler_run`
@SERVERS.reads(wording(rf"warming up sampler with {_COUNT} dummy requests"), "vLLM")
def sampler(text: str, match: "re.Match[str]") -> dict[str, Any]:
    return {
        "asked_for": "the sampler's warm-up",
        "held": _vllm_holds(text, match),
        "headline": f"Not enough memory: vLLM's sampler warm-up with {match[1]} requests did not fit next to the KV"
        " cache",
        "own_ways": (
            f"--max-num-seqs {max(int(match[1]) // 2, 1)}: the warm-up takes half",
            "Lower --gpu-memory-utilization: the KV cache leaves more room",
        ),
    }


_FRACTION = re.compile(rf"mem_fraction_static[=:] ?{_NUMBER}")
_SGLANG_WEIGHTS = re.compile(rf"[Ll]oad[ _]weight[ _]end[^\n]{{0,200}}mem usage={_NUMBER} GB")


@SERVERS.reads(wording(r"Not enough memory\. Please try to increase --mem-fraction-static"), "SGLang")
def sglang(text: str, match: "re.Match[str]") -> dict[str, Any]:
    """SGLang's `GB` are 2^30 bytes (srt/utils, `get_available_gpu_memory`)."""
    fraction, weights = last(_FRACTION, text, match.end() + 100), last(_SGLANG_WEIGHTS, text, match.start())
    return {
        "held": {} if weights is None else {"weights": gib(weights[1])},
        "headline": "Not enough memory: the weights leave nothing for the KV cache within --mem-fraction-static"
        + ("" if fraction is None else f" {fraction[1]}"),
        "own_ways": (
            "Raise --mem-fraction-static: it covers weights and KV cache together",
            "If that ends in an out-of-memory error: lower --chunked-prefill-size or --cuda-graph-max-bs",
            "More GPUs with --tp, or a quantized model",
        ),
    }


@SERVERS.reads(wording(rf"Not enough memory to handle {_COUNT} prefill tokens"), "TGI")
def tgi(_text: str, match: "re.Match[str]") -> dict[str, Any]:
    tokens = int(match[1])
    return {
        "asked_for": f"a prefill of {tokens:,} tokens",
        "headline": f"Not enough memory: TGI's warm-up of {tokens:,} prefill tokens did not fit",
        "own_ways": (
            f"--max-batch-prefill-tokens {max(tokens // 2, 1)}: the warm-up takes half",
            "--max-input-tokens and --max-total-tokens must be lower as well",
            "--quantize, or more GPUs with --num-shard",
        ),
    }


@SERVERS.reads(re.compile(r"The following component could not be created: ([^\n]{1,200})"), "TensorRT-LLM")
def tensorrt_llm(text: str, match: "re.Match[str]") -> dict[str, Any]:
    """The table of components of tensorrt_llm/_torch/pyexecutor/py_executor_creator.py, 1.0."""
    component = match[1].strip()
    behind = text[match.start() : match.start() + 3000]
    total = re.search(rf"Total GPU memory \(GiB\): {_NUMBER}", behind)
    free = re.search(rf"Free GPU memory before component creation attempt \(GiB\): {_NUMBER}", behind)
    memory: dict[str, int] = {}
    for name, before, after in re.findall(rf"^([A-Z][^:\n]{{1,80}}): {_NUMBER} / {_NUMBER}$", behind, re.MULTILINE):
        if float(before) > float(after):
            memory[name.split(" (")[0].lower()] = gib(f"{float(before) - float(after):.4f}")
    return {
        "asked_for": component,
        "total": None if total is None else gib(total[1]),
        "free": None if free is None else gib(free[1]),
        "held": memory,
        "headline": f"Not enough memory: TensorRT-LLM could not create {component}",
        "own_ways": (
            "Lower kv_cache_config.free_gpu_memory_fraction, max_num_tokens or max_batch_size",
            "A quantized model, or a larger tensor parallel size",
        ),
    }


SERVERS.states(
    re.compile(
        r"\[TensorRT-LLM\][^\n]{0,200}CUDA runtime error in [^\n]{0,80}cudaMalloc\w*[^\n]{0,120}: out of memory"
    ),
    "TensorRT-LLM",
    "not enough memory",
    "Not enough memory: TensorRT-LLM's cudaMalloc failed; the message states no sizes",
)


@SERVERS.reads(
    re.compile(
        r"projected to use (\d{1,12}) MiB of (?:device|host) memory vs\. (\d{1,12}) MiB of free"
        r"(?=[\s\S]{0,4000}(?:cannot fulfill|failed to fit))"
    ),
    "llama.cpp",
)
def params_fit(_text: str, match: "re.Match[str]") -> dict[str, Any]:
    """llama.cpp since December 2025 (common/fit.cpp): what the model would take, next to what is free."""
    wanted, free = (int(number) * MIB for number in match.groups())
    return {
        "asked": wanted,
        "asked_for": "the model with its context",
        "free": free,
        "headline": f"Not enough memory: llama.cpp projects {format_bytes(wanted, 2)} of GPU memory,"
        f" {format_bytes(free, 2)} is free",
        "own_ways": (
            "A shorter context (-c): without -c the model's longest is tried",
            "-fit on without -ngl moves layers to the CPU; for mixture-of-experts models -ncmoe moves experts first",
            "A KV cache of -ctk q8_0 -ctv q8_0 with -fa on, or a smaller quantization",
        ),
    }


@SERVERS.reads(wording(r"model requires more system memory \(SIZE\) than is available \(SIZE\)"), "Ollama", "host")
def ollama_host(_text: str, match: "re.Match[str]") -> dict[str, Any]:
    wanted, free = bytes_of(match[1]), bytes_of(match[2])
    return {
        "asked": wanted,
        "headline": f"Not GPU memory: Ollama needs {format_bytes(wanted, 2)} of the host's memory for this model and"
        f" {format_bytes(free, 2)} is available",
        "own_ways": (
            "A smaller quantization or model",
            "A shorter context (OLLAMA_CONTEXT_LENGTH or num_ctx)",
            "More of the model on the GPU (num_gpu), if it has room",
        ),
    }


_BUFFER_SIZE = re.compile(rf"(?:CUDA|ROCm|Vulkan|SYCL|MTL){_COUNT} (model|KV|compute) buffer size = +{_NUMBER} MiB")
_BUFFER_NAMES = {"model": "weights", "KV": "KV cache", "compute": "compute buffer"}
_DEVICE_FREE = re.compile(rf"using device (?:CUDA|ROCm|Vulkan|SYCL|MTL){_COUNT} \([^\n]{{0,200}}? - {_COUNT} MiB free")
_VULKAN_LIMIT = re.compile(r"ggml_vulkan:")
_COPIES = re.compile(r"pipeline parallelism enabled \(n_copies=(\d{1,3})\)")
_AFTER = 2000  # characters behind a failed buffer in which llama.cpp says what it was for
_COMPUTE = ("Flash attention (-fa on)", "A smaller micro-batch (-ub 256)", "A shorter context (-c)")
_CACHE = ("A shorter context (-c)", "-ctk q8_0 -ctv q8_0 with -fa on halves it", "Fewer slots (-np 1)")
_WEIGHTS = ("Fewer layers on the GPU (-ngl)", "A smaller quantization", "More GPUs (-ts, --tensor-split)")
_PURPOSES: tuple[tuple["re.Pattern[str]", str, tuple[str, ...]], ...] = (
    (re.compile(r"compute buffers|ggml_gallocr_reserve"), "the compute buffer", _COMPUTE),
    (re.compile(r"kv cache|KV buffer|llama_kv_cache"), "the KV cache", _CACHE),
    (re.compile(r"compute|graph_reserve"), "the compute buffer", _COMPUTE),
    (re.compile(r"error loading model|load_tensors|llama_model_load"), "the weights", _WEIGHTS),
)


def _buffer(text: str, match: "re.Match[str]", device: int, asked: int) -> dict[str, Any]:
    """One buffer of `asked` bytes that llama.cpp could not get on `device`."""
    behind = text[match.start() : match.start() + _AFTER]
    purpose, advice = next(((name, ways) for sign, name, ways in _PURPOSES if sign.search(behind)), ("", ()))
    memory: dict[str, int] = {}
    for size in _BUFFER_SIZE.finditer(text, 0, match.start()):
        if int(size[1]) == device:
            name = _BUFFER_NAMES[size[2]]
            memory[name] = memory.get(name, 0) + round(float(size[3]) * MIB)
    at_start = None
    for free in _DEVICE_FREE.finditer(text, 0, match.start()):
        at_start = int(free[2]) * MIB if int(free[1]) == device else at_start
    left = ""
    if at_start is not None:
        left = f", and about {format_bytes(max(at_start - sum(memory.values()), 0), 2)} was left there"
    what = f"{purpose} of {format_bytes(asked, 2)}" if purpose else format_bytes(asked, 2)
    copies = _COPIES.search(text)
    ways = list(advice)
    if copies is not None and purpose in {"", "the compute buffer"}:
        ways.insert(
            0,
            f"Pipeline parallelism keeps {copies[1]} copies of the compute buffers: build with"
            " -DGGML_SCHED_MAX_COPIES=1, or use -sm none or one GPU",
        )
    if _VULKAN_LIMIT.search(text) and asked >= 2 * 1024 * MIB:
        ways.insert(0, "GGML_VK_FORCE_MAX_ALLOCATION_SIZE=1073741824: this driver refuses larger buffers")
    return {
        "gpu": device,
        "asked": asked,
        "asked_for": purpose,
        "held": memory,
        "headline": f"Not enough memory: {what} did not fit on device {device}{left}",
        "own_ways": ways,
    }


SERVERS.reads(re.compile(r"ggml_vulkan: Device memory allocation of size (\d{1,15}) failed"), "llama.cpp")(
    lambda text, match: _buffer(text, match, 0, int(match[1]))
)
SERVERS.reads(
    re.compile(rf"failed to allocate (?:CUDA|ROCm|Vulkan|SYCL|MTL){_COUNT} buffer of size {_COUNT}"), "llama.cpp"
)(lambda text, match: _buffer(text, match, int(match[1]), int(match[2])))
SERVERS.reads(re.compile(rf"allocating {_NUMBER} MiB on device {_COUNT}: cudaMalloc failed"), "llama.cpp")(
    lambda text, match: _buffer(text, match, int(match[2]), round(float(match[1]) * MIB))
)


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
# TensorFlow's own names of types, besides those that it shares with torch (2.x, tensorflow/core/framework/types.cc).
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
    """A request of `asked` bytes for `what` that TensorFlow's pool could not serve; the log has its size, or not."""
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
