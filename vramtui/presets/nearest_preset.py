"""The preset of the model that a name on the Hub, of a folder or of a file most likely means."""

import re
from collections.abc import Mapping
from pathlib import PurePath

from vramtui.core.schema.preset import PresetFile
from vramtui.presets.library import PresetLibrary

LLAMA_CPP = "llama.cpp"
_RUN_WORDS = {"lora", "qlora", "full", "fsdp", "infer", "serve", "server", "train", "llama-server", "mlm", "classify"}
_PARTS = re.compile(r"\d+(?:\.\d+)?(?:[bm](?![a-z]))?|[a-z]+")
_ALIASES = {
    # Their shapes are those of the 3.1 models, which only take longer texts.
    **{f"llama-3-{size}{kind}": f"llama-3.1-{size}" for size in ("8b", "70b") for kind in ("", "-instruct")},
    "gpt2": "gpt2-124m",
    "gpt2-medium": "gpt2-355m",
    "gpt2-large": "gpt2-774m",
    "gpt2-xl": "gpt2-1.5b",
    "stable-diffusion-xl-base-1.0": "sdxl",
    "stable-diffusion-v1-5": "sd-1.5",
    "stable-diffusion-2-1": "sd-2.1",
    "flux.1-dev": "flux-dev",
}


def nearest_preset(name: str, library: PresetLibrary, said: Mapping[str, str]) -> PresetFile | None:
    """The preset whose model is the one called `name`, its run the nearest to what is said; None when no model's name
    and size agree.
    """
    words = _words(name)
    best: tuple[tuple[int, int], PresetFile] | None = None
    for preset_file in library.all():
        parts = _words("-".join(part for part in preset_file.key.split("-") if part not in _RUN_WORDS))
        if parts and parts <= words and (best is None or (len(parts), _agree(preset_file, said)) > best[0]):
            best = ((len(parts), _agree(preset_file, said)), preset_file)
    return best[1] if best is not None else None


def _words(name: str) -> set[str]:
    """The words and numbers of a model's name; `3_1` is 3.1, and names that say no size get the one they mean."""
    plain = name.lower().rstrip("/")
    text = re.sub(r"(?<=\d)_(?=\d)", ".", PurePath(plain).name if "." in plain else plain)
    for short, whole_name in _ALIASES.items():
        text = re.sub(rf"{re.escape(short)}$", whole_name, text)
    return set(_PARTS.findall(text))


def _agree(preset_file: PresetFile, said: Mapping[str, str]) -> int:
    """How much of the run is as it is said: its kind most, then adapters, quantization, engine, sharding."""
    run = preset_file.preset.run
    strategy = preset_file.preset.parallel.strategy if preset_file.preset.parallel is not None else "ddp"
    return (
        16 * (run.__struct_config__.tag == said.get("run.kind"))
        + 8 * ((getattr(run, "engine", "vllm") == LLAMA_CPP) == (said.get("run.engine") == LLAMA_CPP))
        + 4 * ((run.quantization is not None) == ("run.quantization" in said))
        + 2 * ((getattr(run, "lora", None) is not None) == ("run.lora.rank" in said))
        + (strategy == said.get("parallel.strategy", "ddp"))
    )
