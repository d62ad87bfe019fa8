"""A pipeline's model_index.json and the configs of the parts that it names, as one `[model]` table."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.models.families.keys import Fields, Table
from vramtui.models.readers.bounded import DamagedError, path_text
from vramtui.models.readers.diffusers.denoisers import PARTS, read_class
from vramtui.models.readers.diffusers.text_encoders import read_encoder
from vramtui.models.readers.diffusers.vae import read_vae

ENCODERS = ("text_encoder", "text_encoder_2", "text_encoder_3", "text_encoder_4")
Decode = Callable[[Path], dict[str, object]]


class PipelineHabits(msgspec.Struct, frozen=True, kw_only=True):
    """What a pipeline's own code adds to its parts (diffusers 0.42).

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

    Args:
        index: its model_index.json.
        values: what that says.
        decode: reads the config of a part.

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
        encoders = _encoders(index, values, usual, decode)
    except (DamagedError, UserError) as error:
        return name, table, f"its {denoiser} only, since {_reason(error)}"
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


def _encoders(index: Path, values: dict[str, object], usual: PipelineHabits, decode: Decode) -> list[Table]:
    encoders: list[Table] = []
    for name in (name for name in ENCODERS if _class_of(values, name)):
        path = _config_of_part(index, values, name)
        try:
            encoder = read_encoder(Fields(decode(path)), _class_of(values, name))
        except DamagedError as error:
            raise UserError(f"{path_text(path)} {error}") from None
        tokens = usual.tokens[min(len(encoders), len(usual.tokens) - 1)]
        states = encoder.get("keeps_states", False) or (usual.states and not encoder.get("position_bias", False))
        encoders.append({"name": name, "tokens": tokens, **encoder, "keeps_states": states})
    return encoders


def _config_of_part(index: Path, values: dict[str, object], part: str) -> Path:
    if not _class_of(values, part):
        raise DamagedError(f"names no {part}")
    return index.parent / part / "config.json"


def _class_of(values: dict[str, object], part: str) -> str:
    """The class that an index gives for a part: the second of two names; empty where it has none."""
    value = values.get(part)
    if not isinstance(value, list) or len(value) != 2 or not isinstance(value[1], str):
        return ""
    return value[1]


def _reason(error: Exception) -> str:
    message = str(error)
    return message if isinstance(error, UserError) else f"its index {message}"
