"""A model's file taken for a preset: its model, and a run as one would most likely start it."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.late import late
from vramtui.core.base.text import printable
from vramtui.core.schema.preset import Preset, PresetFile
from vramtui.core.schema.stored_tensors import ENCODER_TENSORS, INPUT_CONVOLUTIONS
from vramtui.core.schema.workload import InferRun, Quantization
from vramtui.models.named_files import is_gguf
from vramtui.models.readers.bounded import path_text
from vramtui.presets.schema import find_faults

if TYPE_CHECKING:
    from vramtui.models.readers.config_json import ConfigFile
    from vramtui.models.readers.gguf_model import GgufHeader
    from vramtui.models.readers.safetensors import CheckpointWeights

# A bundled preset needs none of the readers, a file one of them.
parse_config = late("vramtui.models.readers.config_json:parse_config")
gguf_table = late("vramtui.models.readers.model_folder:gguf_table")
read_gguf_header = late("vramtui.models.readers.model_folder:read_gguf_header")
read_hugging_face = late("vramtui.models.readers.model_folder:read_hugging_face")
with_weights = late("vramtui.models.readers.model_folder:with_weights")
fetch_model = late("vramtui.models.stores.hub:fetch_model")

PROMPT, ANSWER, CONTEXT = 2048, 256, 8192
# What models are published in; presets of other models in int4 are somebody's own quantization of bf16 files.
PUBLISHED = ("fp8", "mxfp4")


def preset_of(path: Path, name: str = "") -> Preset:
    """The model at `path` and a default run: generation for a Hugging Face model, llama.cpp for a GGUF file.

    Args:
        path: a model's file, or the folder of a config.
        name: what it is called; its file's or folder's name when empty.

    Raises:
        UserError: it cannot be read, is damaged, or describes a model that is not known.
    """
    if is_gguf(path):
        header = read_gguf_header(path)
        return _preset(path, _gguf_tables(path, header, name or path.stem))
    return _preset(path, tables_of_config(name or title_of(path), *read_hugging_face(path)))


def preset_of_known(name: str, known: PresetFile) -> Preset:
    """The model of `known` and the run that `preset_of` gives it, with the quantization that its own files have.

    Args:
        name: what the model is called.
        known: the preset that describes this very model.
    """
    model = {"kind": known.preset.model.__struct_config__.tag, **msgspec.to_builtins(known.preset.model)}
    own = known.preset.run
    run: dict[str, Any] = {"kind": "infer", "precision": own.precision if isinstance(own, InferRun) else "bf16"}
    if isinstance(own, InferRun) and own.quantization in PUBLISHED:
        run["quantization"] = own.quantization
    notes = f"Sizes from the bundled preset {known.key} ({name.rpartition('/')[2]} not downloaded)."
    return checked_preset(name, {"name": name, "notes": notes, "model": model, "run": run | _lengths(model)})


def preset_of_values(name: str, values: dict[str, Any]) -> Preset:
    """The model called `name` on the Hub, of whose config.json these keys are known, and a default run."""
    tables = tables_of_config(name, parse_config(values))
    notes = f"{tables['notes'].removesuffix('.')} (sizes known, not downloaded)."
    return checked_preset(name, tables | {"notes": notes})


def preset_from_hub(name: str, environ: Mapping[str, str] | None = None) -> tuple[str, Preset]:
    """Address and preset of `owner/name` or `owner/name@revision` on the Hub, over the network.

    Raises:
        UserError: it is no such name, the network is switched off or fails, or the model is not read.
    """
    model = fetch_model(name, environ)
    return model.address, checked_preset(model.address, tables_of_config(model.name, model.config, model.weights))


def _gguf_tables(path: Path, header: "GgufHeader", name: str) -> dict[str, Any]:
    model = gguf_table(path, header)
    main = header.main_type()
    longest = model.get("max_position_embeddings")
    run: dict[str, Any] = {
        "kind": "serve",
        "engine": "llama.cpp",
        "max_model_len": min(longest, CONTEXT) if isinstance(longest, int) else CONTEXT,
        "precision": {"f32": "fp32", "bf16": "bf16"}.get(main, "fp16"),
        "stored": header.stored(),
    }
    # Of a dense model's file each tensor's bytes are known; as a run's, MXFP4 is that of experts alone.
    dense = main == "mxfp4" and not model.get("num_experts")
    if main in Quantization.__args__ and not dense:  # type: ignore[attr-defined] # a Literal's values
        run["quantization"] = main
    notes = f"{header.parameters:,} parameters, most of them in {main}; every tensor counted as the file holds it"
    start = "Read from" if header.is_known else f"Generic: {printable(header.kind[:40])}, read from"
    return {"name": name, "notes": f"{start} a GGUF header: {notes}.", "model": model, "run": run}


def tables_of_config(name: str, config: "ConfigFile", weights: "CheckpointWeights | None" = None) -> dict[str, Any]:
    """A preset's tables for a config, and for the weights beside it where they are there."""
    model: dict[str, Any] = dict(config.model if weights is None else with_weights(config, weights))
    notes = f"Read from a config of {config.architecture}"
    if config.basis == "generic":
        notes = f"Generic: read from the keys that most configs share ({config.architecture})"
    if config.basis == "generic" and config.counted:
        notes = f"Generic: every tensor of a config of {config.architecture}; what it holds while it runs is a guess"
    if config.partial:
        notes += f", {config.partial}"
    notes = "; ".join((notes, *config.guessed))
    if config.unread and weights is None:
        if model.get("kind", "transformer") == "transformer":
            model["basis"] = "generic"
        notes += f"; its quantization, {config.unread}, is not known, and weights are counted as if they had none"
    if weights is not None:
        notes += f"; {weights.parameters:,} numbers stored, most of them {weights.main_type}"
    stored = weights.precision if weights is not None else None
    run: dict[str, Any] = {"kind": "infer", "precision": stored or config.precision or "bf16"}
    if config.quantization is not None and (not _packed(model) or (config.mixed and weights is None)):
        run["quantization"] = config.quantization
    return {"name": name, "notes": f"{notes}.", "model": model, "run": run | _lengths(model)}


def _packed(model: dict[str, Any]) -> bool:
    """Whether the tensors of its layers are listed with their own bits, as a file holds them."""
    return any("bits" in group and group.get("place") != "tower" for group in model.get("tensors", ()))


def _lengths(model: dict[str, Any]) -> dict[str, int]:
    """Tokens of a prompt and an answer that the model takes."""
    if model["kind"] in {"unet", "dit", "pipeline"}:
        return {}
    if model["kind"] != "transformer":
        longest = model.get("max_position_embeddings") or PROMPT
        has_words = model.get("image_size") is None and model.get("num_mel_bins") is None
        return {"sequence_length": min(longest, 512)} if has_words else {}
    names = {group["name"] for group in model.get("tensors", ())}
    if names & INPUT_CONVOLUTIONS and not model.get("caches"):
        return {"sequence_length": model.get("max_position_embeddings") or PROMPT}
    if names & ENCODER_TENSORS:
        return {"sequence_length": min(model.get("max_position_embeddings") or PROMPT, 512)}
    longest = model.get("max_position_embeddings") or PROMPT + ANSWER
    answer = min(ANSWER, longest // 2)
    return {"sequence_length": max(1, min(PROMPT, longest - answer)), "new_tokens": answer}


def title_of(path: Path) -> str:
    """A file's own name, or its folder's where every model's file is called so."""
    try:
        whole = path.resolve()
    except (OSError, RuntimeError):
        return path.stem
    if whole.is_dir():
        return whole.name
    return whole.parent.name if whole.stem.startswith(("config", "model")) and whole.parent.name else whole.stem


def _preset(path: Path, tables: dict[str, Any]) -> Preset:
    return checked_preset(path_text(path), tables)


def checked_preset(where: str, tables: dict[str, Any]) -> Preset:
    """The preset that these tables say.

    Raises:
        UserError: a value of them cannot be; the sentence begins with `where`.
    """
    try:
        return msgspec.convert(tables, Preset)
    except msgspec.ValidationError as error:
        faults = find_faults(tables)
        raise UserError(f"{where}: {faults[0].sentence if faults else error}") from None
