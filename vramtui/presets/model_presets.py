"""Models' files in presets: a model's file as a preset with a default run, and `[model] config = "…"`."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.late import late
from vramtui.core.base.text import printable
from vramtui.core.schema.models import ENCODER_TENSORS, INPUT_CONVOLUTIONS
from vramtui.core.schema.preset import Preset, PresetFile
from vramtui.core.schema.workload import InferRun, Quantization
from vramtui.models.named_files import CONFIG, INDEX, SUFFIXES, WEIGHTS, Stamp, is_gguf, path_named, stamp_of
from vramtui.models.readers.bounded import path_text
from vramtui.models.stores.local_models import find_model
from vramtui.presets.schema import find_faults

if TYPE_CHECKING:
    from vramtui.models.readers.config_json import ConfigFile
    from vramtui.models.readers.gguf import GgufHeader
    from vramtui.models.readers.model_folder import CheckpointWeights

# A bundled preset needs none of the readers, a file one of them.
parse_config = late("vramtui.models.readers.config_json:parse_config")
gguf_table = late("vramtui.models.readers.model_folder:gguf_table")
read_gguf_header = late("vramtui.models.readers.model_folder:read_gguf_header")
read_hugging_face = late("vramtui.models.readers.model_folder:read_hugging_face")
with_weights = late("vramtui.models.readers.model_folder:with_weights")
fetch_model = late("vramtui.models.stores.hub:fetch_model")

PROMPT, ANSWER, CONTEXT = 2048, 256, 8192
# Types that models are published in; presets in int4 are a person's own quantization of bf16 files.
PUBLISHED = ("fp8", "mxfp4")


def preset_of(path: Path, name: str = "") -> Preset:
    """Return the model at `path` (a model's file, or the folder of a config) and a default run: generation for a
    Hugging Face model, llama.cpp for a GGUF file. Without `name` it has its file's or folder's name. Raises UserError
    if it cannot be read, is damaged, or describes an unknown model.
    """
    if not is_gguf(path):
        return checked_preset(path_text(path), tables_of_config(name or title_of(path), *read_hugging_face(path)))
    header: GgufHeader = read_gguf_header(path)
    model, main = gguf_table(path, header), header.main_type()
    longest = model.get("max_position_embeddings")
    run: dict[str, Any] = {
        "kind": "serve",
        "engine": "llama.cpp",
        "max_model_len": min(longest, CONTEXT) if isinstance(longest, int) else CONTEXT,
        "precision": {"f32": "fp32", "bf16": "bf16"}.get(main, "fp16"),
        "stored": header.stored(),
    }
    # A dense model's file gives each tensor's bytes; as a run's quantization, MXFP4 is only the experts'.
    dense = main == "mxfp4" and not model.get("num_experts")
    if main in Quantization.__args__ and not dense:  # type: ignore[attr-defined] # a Literal's values
        run["quantization"] = main
    notes = f"{header.parameters:,} parameters, most of them in {main}; every tensor counted as the file holds it"
    start = "Read from" if header.is_known else f"Generic: {printable(header.kind[:40])}, read from"
    tables = {"name": name or path.stem, "notes": f"{start} a GGUF header: {notes}.", "model": model, "run": run}
    return checked_preset(path_text(path), tables)


def preset_of_known(name: str, known: PresetFile) -> Preset:
    """Return the model called `name`, which the preset `known` describes, and the run that `preset_of` gives it, with
    the quantization of its own files.
    """
    model = {"kind": known.preset.model.__struct_config__.tag, **msgspec.to_builtins(known.preset.model)}
    own = known.preset.run
    run: dict[str, Any] = {"kind": "infer", "precision": own.precision if isinstance(own, InferRun) else "bf16"}
    if isinstance(own, InferRun) and own.quantization in PUBLISHED:
        run["quantization"] = own.quantization
    notes = f"Sizes by name from the bundled presets ({name.rpartition('/')[2]} not downloaded)."
    return checked_preset(name, {"name": name, "notes": notes, "model": model, "run": run | _lengths(model)})


def preset_of_values(name: str, values: dict[str, Any]) -> Preset:
    """Return the model called `name` on the Hub, from known keys of its config.json, and a default run."""
    tables = tables_of_config(name, parse_config(values))
    notes = f"{tables['notes'].removesuffix('.')} (sizes known, not downloaded)."
    return checked_preset(name, tables | {"notes": notes})


def preset_from_hub(name: str, environ: Mapping[str, str] | None = None) -> tuple[str, Preset]:
    """Return address and preset of `owner/name` or `owner/name@revision` on the Hub, over the network. Raises UserError
    if it is not a name of this form, the network is switched off or fails, or the model cannot be read.
    """
    model = fetch_model(name, environ)
    return model.address, checked_preset(model.address, tables_of_config(model.name, model.config, model.weights))


def tables_of_config(name: str, config: "ConfigFile", weights: "CheckpointWeights | None" = None) -> dict[str, Any]:
    """Return a preset's tables for a config, and for its weights if they are there."""
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
    # Whether the tensors of its layers are listed with their own bits, as a file holds them.
    packed = any("bits" in group and group.get("place") != "tower" for group in model.get("tensors", ()))
    if config.quantization is not None and (not packed or (config.mixed and weights is None)):
        run["quantization"] = config.quantization
    return {"name": name, "notes": f"{notes}.", "model": model, "run": run | _lengths(model)}


def _lengths(model: dict[str, Any]) -> dict[str, int]:
    """The default tokens of a prompt and an answer."""
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
    """A file's own name, or its folder's if every model's file has that name."""
    try:
        whole = path.resolve()
    except (OSError, RuntimeError):
        return path.stem
    if whole.is_dir():
        return whole.name
    return whole.parent.name if whole.stem.startswith(("config", "model")) and whole.parent.name else whole.stem


def checked_preset(where: str, tables: dict[str, Any]) -> Preset:
    """Convert tables to a preset; raises UserError if a value is impossible; the sentence begins with `where`."""
    try:
        return msgspec.convert(tables, Preset)
    except msgspec.ValidationError as error:
        faults = find_faults(tables)
        raise UserError(f"{where}: {faults[0].sentence if faults else error}") from None


def filled(tables: dict[str, Any], folder: Path | None) -> dict[str, Any]:
    """Return a preset's tables with `model.config` replaced by that file's values, under those of the table itself; a
    path is relative to `folder`, the preset's own (the working directory if None). Raises UserError if the file cannot
    be read or is not a model's; the sentence begins with the key.
    """
    model = tables.get("model")
    if isinstance(model, dict) and model.get("kind") == "torch":
        if folder is None or not isinstance(model.get("file"), str):
            return tables
        return tables | {"model": model | {"file": str((folder / path_named(model["file"])).resolve())}}
    if not isinstance(model, dict) or "config" not in model:
        return tables
    name = model["config"]
    if not isinstance(name, str) or not name or "\0" in name:
        raise UserError(
            "model.config must be the path of a config.json, safetensors or GGUF file, or a model's name, in quotes"
        )
    try:
        config = find_model(name, folder=folder)
        path = (folder or Path()) / path_named(name) if config is None else config.path
        # Read once as long as the file and its neighbours stay the same: an editor asks at every keystroke, and a GGUF
        # header may be 10 MB.
        counted = (place / part for place in (path, path.parent) for part in (CONFIG, WEIGHTS, INDEX))
        described = dict(_read(path, tuple(map(stamp_of, (path, *counted)))))
    except (UserError, RuntimeError) as error:
        raise UserError(f"model.config: {error}") from None
    own = {key: value for key, value in model.items() if key != "config"}
    if set(own) - {"kind", "parameters"} and "parameters" not in own:
        described.pop("parameters", None)
    if own.get("kind", described["kind"]) != described["kind"]:
        given = printable(repr(own["kind"]))[:40]
        raise UserError(f"model.kind is {given}, but model.config describes a model of kind {described['kind']!r}")
    return tables | {"model": described | own}


@lru_cache(maxsize=8)
def _read(path: Path, _stamps: tuple[Stamp | None, ...]) -> dict[str, Any]:
    if is_gguf(path):
        return dict(gguf_table(path, read_gguf_header(path)))
    if path.suffix in SUFFIXES or path.is_dir():
        return dict(with_weights(*read_hugging_face(path)))
    raise UserError(f"{path.name} is not a config.json, *.safetensors, *.gguf or a folder with them")
