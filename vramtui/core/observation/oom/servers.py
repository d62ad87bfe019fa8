"""What vLLM, SGLang and llama.cpp write when a model does not fit; the wordings are those of logs in their trackers.

vLLM 0.2 to 0.24 (v1/core/kv_cache_utils.py, v1/worker/gpu_worker.py), SGLang 0.1 to 0.5 (model_executor, mem_cache),
llama.cpp of 2024 to 2026 (ggml/src/ggml-alloc.c, ggml-cuda.cu; src/llama-kv-cache.cpp), which Ollama passes on.
"""

import math
import re

from vramtui.core.base.units import MIB, format_bytes
from vramtui.core.observation.oom.messages import OomMessage, gib, last, wording
from vramtui.core.observation.oom.report import OomReport

_COUNT = r"(\d{1,15})"
_NUMBER = r"(\d{1,12}(?:\.\d{1,12})?)"

_TOKENS = wording(
    rf"max seq len \({_COUNT}\) is larger than the maximum number of tokens that can be stored in KV cache"
    rf" \({_COUNT}\)"
)
_KV_CACHE = wording(
    rf"max seq len \({_COUNT}\), \(?{_NUMBER} GiB KV cache is needed, which is larger than the available KV cache"
    rf" memory \((-?\d{{1,12}}(?:\.\d{{1,12}})?) GiB"
)
_LONGEST = wording(rf"estimated maximum model length is {_COUNT}")
_START = wording(
    rf"Free memory on device(?: \S+)? \({_NUMBER}/{_NUMBER} GiB\) on startup is less than desired GPU memory"
    rf" utilization \({_NUMBER}, {_NUMBER} GiB\)"
)
_NO_BLOCKS = wording(r"No available memory for the cache blocks\.")
_VLLM_HELD = {
    "weights": wording(rf"(?:model weights take|Model loading took|Loading model weights took) {_NUMBER} ?Gi?B"),
    "activations": wording(rf"activation peak memory takes {_NUMBER} ?GiB"),
    "CUDA graphs": wording(rf"Estimated CUDA graph memory: {_NUMBER} GiB"),
    "outside PyTorch": wording(rf"non_torch_memory takes {_NUMBER} ?GiB"),
}
_BUDGET = wording(rf"gpu_memory_utilization \({_NUMBER}\) = {_NUMBER} ?GiB")

_SGLANG = wording(r"Not enough memory\. Please try to increase --mem-fraction-static")
_FRACTION = re.compile(rf"mem_fraction_static[=:] ?{_NUMBER}")
_SGLANG_WEIGHTS = re.compile(rf"[Ll]oad[ _]weight[ _]end[^\n]{{0,200}}mem usage={_NUMBER} GB")

_BUFFER = re.compile(rf"failed to allocate (?:CUDA|ROCm|Vulkan|SYCL|MTL){_COUNT} buffer of size {_COUNT}")
_MALLOC = re.compile(rf"allocating {_NUMBER} MiB on device {_COUNT}: cudaMalloc failed")
_BUFFER_SIZE = re.compile(rf"(?:CUDA|ROCm|Vulkan|SYCL|MTL){_COUNT} (model|KV|compute) buffer size = +{_NUMBER} MiB")
_BUFFER_NAMES = {"model": "weights", "KV": "KV cache", "compute": "compute buffer"}
_DEVICE_FREE = re.compile(rf"using device (?:CUDA|ROCm|Vulkan|SYCL|MTL){_COUNT} \([^\n]{{0,200}}? - {_COUNT} MiB free")
_AFTER = 2000  # characters behind a failed buffer in which llama.cpp says what it was for
_PURPOSES = (
    (
        re.compile(r"kv cache|KV buffer|llama_kv_cache"),
        "the KV cache",
        "A shorter context (-c) or a smaller type of cache (-ctk q8_0 -ctv q8_0 with -fa on) takes less.",
    ),
    (
        re.compile(r"compute|graph_reserve"),
        "the compute buffer",
        "A smaller micro-batch (-ub 256) or flash attention (-fa on) takes less.",
    ),
    (
        re.compile(r"error loading model|load_tensors|llama_model_load"),
        "the weights",
        "Fewer layers on the GPU (-ngl), a smaller quantization, or more cards (--tensor-split) take less there.",
    ),
)


def _longer_than_the_pool(text: str, match: "re.Match[str]") -> OomReport:
    wanted, fits = int(match[1]), int(match[2])
    sentences = (
        (
            f"Not enough room: the KV cache holds {fits:,} tokens, and a sequence may be {wanted:,};"
            f" --max-model-len {fits} fits"
        ),
    )
    return OomReport(
        program="vLLM", held=_vllm_holds(text, match), pool=(wanted, fits), known_cause="room", own_sentences=sentences
    )


def _one_sequence(text: str, match: "re.Match[str]") -> OomReport:
    wanted, needed, left = int(match[1]), float(match[2]), float(match[3])
    longest = _LONGEST.search(text, match.end(), match.end() + 400)
    sentence = (
        f"Not enough room: {wanted:,} tokens need {needed:.2f} GiB of KV cache, and {left:.2f} GiB is left for it"
    )
    if longest is not None:
        sentence += f"; --max-model-len {longest[1]} fits"
    elif needed > 0 and left > 0:
        sentence += f"; about {int(wanted * left / needed):,} fit, where each takes the same"
    return OomReport(
        program="vLLM",
        asked=gib(match[2]),
        asked_for="the KV cache",
        held=_vllm_holds(text, match),
        pool=None if longest is None else (wanted, int(longest[1])),
        known_cause="room",
        own_sentences=(
            sentence,
            "A quantized cache (--kv-cache-dtype fp8) holds more; --tensor-parallel-size splits it.",
        ),
    )


def _too_little_at_the_start(text: str, match: "re.Match[str]") -> OomReport:
    free, total, share, wanted = match.groups()
    shown = f"{math.floor(float(free) / max(float(total), 1e-9) * 100) / 100:.2f}"
    sentences = (
        (
            f"A neighbour: vLLM wants {wanted} GiB of the card at its start (--gpu-memory-utilization {share}), and"
            f" {free} GiB of {total} is free"
        ),
        (
            f"--gpu-memory-utilization {shown} is what is free; `vramtui ps` shows who holds the rest, and"
            " `vramtui run --when-fits -- COMMAND` waits for it."
        ),
    )
    return OomReport(
        program="vLLM",
        asked=gib(wanted),
        asked_for="vLLM's share of the card",
        total=gib(total),
        free=gib(free),
        held=_vllm_holds(text, match),
        known_cause="neighbour",
        own_sentences=sentences,
    )


def _no_blocks(text: str, match: "re.Match[str]") -> OomReport:
    budget = last(_BUDGET, text, match.start())
    within = "" if budget is None else f" {budget[1]}, which is {budget[2]} GiB"
    sentences = (
        f"Not enough room: the model leaves nothing for the KV cache within --gpu-memory-utilization{within}",
        (
            "Raise it where the card has room; else lower --max-num-batched-tokens or --max-num-seqs, take a quantized"
            " model, or split it with --tensor-parallel-size."
        ),
    )
    return OomReport(program="vLLM", held=_vllm_holds(text, match), known_cause="room", own_sentences=sentences)


def _vllm_holds(text: str, match: "re.Match[str]") -> dict[str, int]:
    """What vLLM has written of its own memory before the message."""
    sizes = {name: last(pattern, text, match.start()) for name, pattern in _VLLM_HELD.items()}
    return {name: gib(size[1]) for name, size in sizes.items() if size is not None}


def _sglang(text: str, match: "re.Match[str]") -> OomReport:
    """SGLang's `GB` are 2^30 bytes (srt/utils, `get_available_gpu_memory`)."""
    fraction = last(_FRACTION, text, match.end() + 100)
    weights = last(_SGLANG_WEIGHTS, text, match.start())
    sentences = (
        "Not enough room: the weights leave nothing for the KV cache within --mem-fraction-static"
        + ("" if fraction is None else f" {fraction[1]}"),
        "It counts weights and KV cache together: raise it, or split the weights with --tp.",
    )
    memory = {} if weights is None else {"weights": gib(weights[1])}
    return OomReport(program="SGLang", held=memory, known_cause="room", own_sentences=sentences)


def _exact_buffer(text: str, match: "re.Match[str]") -> OomReport:
    return _buffer(text, match, int(match[1]), int(match[2]))


def _malloc(text: str, match: "re.Match[str]") -> OomReport:
    return _buffer(text, match, int(match[2]), round(float(match[1]) * MIB))


def _buffer(text: str, match: "re.Match[str]", device: int, asked: int) -> OomReport:
    """One buffer of `asked` bytes that llama.cpp could not have on `device`."""
    behind = text[match.start() : match.start() + _AFTER]
    purpose, advice = next((rest for sign, *rest in _PURPOSES if sign.search(behind)), ("", ""))
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
        rest = max(at_start - sum(memory.values()), 0)
        left = f", and about {format_bytes(rest, 2)} was left there"
    what = f"{purpose} of {format_bytes(asked, 2)}" if purpose else format_bytes(asked, 2)
    sentence = f"Not enough room: {what} did not fit on device {device}{left}"
    return OomReport(
        program="llama.cpp",
        gpu=device,
        asked=asked,
        asked_for=purpose,
        held=memory,
        known_cause="room",
        own_sentences=(sentence, advice) if advice else (sentence,),
    )


SERVERS = (
    OomMessage(_TOKENS, _longer_than_the_pool),
    OomMessage(_KV_CACHE, _one_sequence),
    OomMessage(_START, _too_little_at_the_start),
    OomMessage(_NO_BLOCKS, _no_blocks),
    OomMessage(_SGLANG, _sglang),
    OomMessage(_BUFFER, _exact_buffer),
    OomMessage(_MALLOC, _malloc),
)
