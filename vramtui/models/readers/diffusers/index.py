"""A pipeline's model_index.json and the configs of the parts that it names, as one `[model]` table; its text encoders
have every tensor by generated shapes.
"""

from collections.abc import Callable
from pathlib import Path

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.models.families.any_config import read_any
from vramtui.models.families.keys import Fields, Keys, Table, layer_count, sizes_of
from vramtui.models.readers.bounded import DamagedError, path_text
from vramtui.models.readers.diffusers.denoisers import PARTS, read_class
from vramtui.models.readers.diffusers.vae import read_vae
from vramtui.models.shapes.known import filled_in
from vramtui.models.shapes.nets import listed_shapes

# Types whose tensors beside `wo` follow the pipeline's precision (transformers, modeling_t5.py: _keep_in_fp32_modules).
IN_FP32 = ("wo",)
# T5 and its kin, by type.
T5 = {"t5": "T5EncoderModel", "mt5": "MT5EncoderModel", "umt5": "UMT5EncoderModel"}


def read_encoder(config: Fields, named: str) -> Table:
    """One of `[[model.encoders]]` without its name and its tokens."""
    kind = config.text("model_type", "")
    if kind in {"clip", "clip_text_model"}:
        part = config.table("text_config") if config.has("text_config") else config
        projected = named.endswith("WithProjection")
        return _encoder(part, "clip_text_model", f"CLIPTextModel{'WithProjection' if projected else ''}")
    if kind in T5:
        encoder = _encoder(config, kind, T5[kind])
        gated = any(group["name"] == "wi_1" for group in encoder["tensors"])
        return encoder | {"gated_mlp": gated, "position_bias": True, "fp32_in_fp16": list(IN_FP32)}
    return _decoder(config)


def _encoder(config: Fields, kind: str, architecture: str) -> Table:
    values = filled_in(dict(config.values), kind)
    keys = Keys(values)
    sizes = sizes_of(keys)
    tensors, _exact = listed_shapes(values | {"architectures": [architecture]}, "base")
    return {
        "hidden_size": sizes.hidden,
        "num_hidden_layers": layer_count(keys),
        "num_attention_heads": sizes.heads,
        "intermediate_size": sizes.ffn,
        "tensors": [msgspec.to_builtins(group) for group in tensors.groups()],
    }


def _decoder(config: Fields) -> Table:
    """A whole language model with whatever belongs to it, such as its tower for images."""
    model = read_any(dict(config.values))
    if model.partial or model.basis != "family":
        raise DamagedError("is of a text encoder that is not known to the last tensor")
    table = model.table
    return {
        "hidden_size": table["hidden_size"],
        "num_hidden_layers": table["num_hidden_layers"],
        "num_attention_heads": table["num_attention_heads"],
        "intermediate_size": table.get("intermediate_size") or 4 * table["hidden_size"],
        "gated_mlp": True,
        "keeps_states": True,
        "output_size": table["vocab_size"],
        "tensors": [msgspec.to_builtins(group) for group in model.tensors],
    }


ENCODERS = ("text_encoder", "text_encoder_2", "text_encoder_3", "text_encoder_4")
Decode = Callable[[Path], dict[str, object]]


class PipelineHabits(msgspec.Struct, frozen=True, kw_only=True):
    """Values that a pipeline's own code adds to its parts (diffusers 0.42).

    Attributes:
        tokens: of a prompt for each encoder; the last number for those after it.
        batched: guidance asks for an image twice in one batch.
        states: its encoders' states are asked for, of every block.
        text_length: tokens that the denoiser reads; those of the last encoder when absent.
        denoiser: other sizes than the denoiser's own.
    """

    tokens: tuple[int, ...] = (77,)
    batched: bool = False
    states: bool = False
    text_length: int | None = None
    denoiser: Table = {}


VIDEO = {"height": 480, "width": 832, "frames": 81}
# By the beginning of the pipeline's class.
HABITS: dict[str, PipelineHabits] = {
    "StableDiffusion3": PipelineHabits(tokens=(77, 77, 256), batched=True, states=True, text_length=333),
    "StableDiffusionXL": PipelineHabits(batched=True, states=True),
    "StableDiffusion": PipelineHabits(batched=True),
    "Flux": PipelineHabits(tokens=(77, 512)),
    "Wan": PipelineHabits(tokens=(512,), denoiser=VIDEO),
    "QwenImage": PipelineHabits(tokens=(512,)),
}


def read_pipeline(index: Path, values: dict[str, object], decode: Decode) -> tuple[str, Table, str]:
    """The class of a pipeline, its `[model]` table, and why it is only its denoiser's where it is; empty elsewhere.

    Raises:
        UserError: the denoiser's config is not there or cannot be read.
        DamagedError: it names no denoiser, or one that is not known.
    """
    named = Fields(values)
    denoiser = next((part for part in PARTS if _class_of(values, part)), None)
    if denoiser is None:
        raise DamagedError(f"names neither a unet nor a transformer: {printable(str(values.get('_class_name'))[:60])}")
    name, table = read_class(Fields(decode(index.parent / denoiser / "config.json")))
    pipeline = named.text("_class_name", name)
    usual = next((one for start, one in HABITS.items() if pipeline.startswith(start)), PipelineHabits())
    try:
        vae = read_vae(Fields(decode(_config_of_part(index, values, "vae"))))
        encoders: list[Table] = []
        for part in filter(lambda part: _class_of(values, part), ENCODERS):
            path = _config_of_part(index, values, part)
            try:
                encoder = read_encoder(Fields(decode(path)), _class_of(values, part))
            except DamagedError as error:
                raise UserError(f"{path_text(path)} {error}") from None
            tokens = usual.tokens[min(len(encoders), len(usual.tokens) - 1)]
            states = encoder.get("keeps_states", False) or (usual.states and not encoder.get("position_bias", False))
            encoders.append({"name": part, "tokens": tokens, **encoder, "keeps_states": states})
    except (DamagedError, UserError) as error:
        index_error = "" if isinstance(error, UserError) else "its index "
        return name, table, f"its {denoiser} only, since {index_error}{error}"
    table |= {"text_length": usual.text_length or encoders[-1]["tokens"]} if encoders else {}
    table |= usual.denoiser if table["kind"] == "dit" else {}
    if table.get("design") == "wan":
        table["pixels_per_token"] = 2 * vae["spatial_factor"]
    whole: Table = {"kind": "pipeline", "denoiser": table, "encoders": encoders, "vae": vae}
    if _class_of(values, f"{denoiser}_2"):
        whole["denoisers"] = 2
    if usual.batched:
        whole["guidance_batch"] = 2
    return pipeline, whole, ""


def _config_of_part(index: Path, values: dict[str, object], part: str) -> Path:
    if not _class_of(values, part):
        raise DamagedError(f"names no {part}")
    return index.parent / part / "config.json"


def _class_of(values: dict[str, object], part: str) -> str:
    """The class that an index gives for a part: the second of two names; empty if it has none."""
    value = values.get(part)
    if not isinstance(value, list) or len(value) != 2 or not isinstance(value[1], str):
        return ""
    return value[1]
