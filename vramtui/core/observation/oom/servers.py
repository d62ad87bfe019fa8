"""Messages of vLLM, SGLang and llama.cpp when a model does not fit; the wordings are those of logs in their trackers.

vLLM 0.2 to 0.24 (v1/core/kv_cache_utils.py, v1/worker/gpu_worker.py), SGLang 0.1 to 0.5 (model_executor, mem_cache),
llama.cpp of 2024 to 2026 (ggml/src/ggml-alloc.c, ggml-cuda.cu; src/llama-kv-cache.cpp), which Ollama passes on.
"""

import math
import re
from typing import Any

from vramtui.core.base.units import MIB, format_bytes
from vramtui.core.observation.oom.advice import WAIT
from vramtui.core.observation.oom.messages import OomMessages, bytes_of, gib, last, wording
from vramtui.core.observation.oom.report import DESKTOP

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
_PURPOSES: tuple[tuple["re.Pattern[str]", str, tuple[str, ...]], ...] = (
    (re.compile(r"compute buffers|ggml_gallocr_reserve"), "the compute buffer", _COMPUTE),
    (
        re.compile(r"kv cache|KV buffer|llama_kv_cache"),
        "the KV cache",
        ("A shorter context (-c)", "-ctk q8_0 -ctv q8_0 with -fa on halves it", "Fewer slots (-np 1)"),
    ),
    (re.compile(r"compute|graph_reserve"), "the compute buffer", _COMPUTE),
    (
        re.compile(r"error loading model|load_tensors|llama_model_load"),
        "the weights",
        ("Fewer layers on the GPU (-ngl)", "A smaller quantization", "More GPUs (-ts, --tensor-split)"),
    ),
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
