"""Names that a word such as `llama` may stand for: the models that most people use, then presets by what they run."""

import re
from collections.abc import Iterable

MOST = 5
_BREAK = re.compile(r"[-_./:]")
# Of each family what is asked for most, first; each is a name that is known without the network.
_POPULAR_TEXT = """
    Llama-3.1-8B-Instruct Llama-3.3-70B-Instruct Llama-3.2-3B-Instruct Llama-3.2-1B-Instruct Meta-Llama-3-8B
    Qwen3-8B Qwen3-32B Qwen3-4B Qwen3-30B-A3B Qwen3-0.6B Qwen2.5-7B-Instruct Qwen2.5-72B-Instruct
    Mistral-7B-Instruct-v0.3 Mistral-Small-24B-Instruct-2501 Mixtral-8x7B-Instruct-v0.1 Mistral-Nemo-Instruct-2407
    gemma-3-27b-it gemma-3-12b-it gemma-3-4b-it gemma-2-9b-it gemma-3-1b-it
    DeepSeek-R1 DeepSeek-V3 DeepSeek-V2-Lite DeepSeek-R1-Distill-Llama-8B DeepSeek-R1-Distill-Qwen-7B
    phi-4 Phi-3-mini-4k-instruct phi-2 gpt-oss-20b gpt-oss-120b gpt2 gpt2-xl
    Kimi-K2-Instruct Kimi-K2.5 TinyLlama-1.1B-Chat-v1.0 TinyLlama_v1.1
    sdxl-infer sdxl-lora sdxl-train sdxl-pipeline stable-diffusion-xl-base-1.0 sd-3.5-large-pipeline sd-1.5-train
    flux-dev-infer flux-dev-lora flux-dev-pipeline FLUX.1-dev qwen-image-pipeline wan-2.1-14b-pipeline
    clip-vit-large-patch14 clip-vit-base-patch32 clip-vit-base-patch16 vit-base-patch16-224 vit-base-patch16-224-in21k
    vit-l16-infer vit-b16-train resnet50 resnet18 resnet101
    bert-base-uncased bert-large-uncased roberta-base t5-large t5-base t5-small flan-t5-large
    whisper-large-v3 whisper-large-v3-turbo whisper-small whisper-base bart-large
"""
POPULAR = tuple(_POPULAR_TEXT.split())
# What people say, and the word that the names above have for it.
OTHER_WORDS = {"stablediffusionxl": "sdxl", "sd3": "sd35", "stablediffusion3": "sd35", "stablediffusion": "sdxl"}
# Of presets by the last words of their names: what only answers before what trains.
_RUNS = ("infer", "pipeline", "serve", "lora", "qlora", "full", "train", "fsdp")


def names_like(word: str, keys: Iterable[str], hub_names: Iterable[str]) -> tuple[str, ...]:
    """Up to five names that have `word` in them, most used first; none where none has.

    Args:
        word: what somebody typed.
        keys: of the presets.
        hub_names: of the Hub's models, without their owners.
    """
    plain = _letters(word)
    plain = OTHER_WORDS.get(plain, plain)
    if len(plain) < 2 or plain.isdecimal():
        return ()
    presets = sorted((key for key in keys if not key.startswith(("rule-", "tiny-"))), key=lambda key: (_run(key), key))
    names = dict.fromkeys((*POPULAR, *presets, *hub_names))
    beginning = [name for name in names if _letters(name).startswith(plain)]
    within = [name for name in names if name not in beginning and _has_word(name, plain)]
    return tuple([*beginning, *within][:MOST])


def _has_word(name: str, plain: str) -> bool:
    """Whether a later word of `name` begins so: `vit-base` is in sam-vit-base, and `lama` not in llama."""
    return any(_letters(name[at.end() :]).startswith(plain) for at in _BREAK.finditer(name))


def _letters(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _run(key: str) -> int:
    return next((at for at, run in enumerate(_RUNS) if key.endswith(f"-{run}")), len(_RUNS))
