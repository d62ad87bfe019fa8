"""`--image`: images in each sequence, by their size or as a number of tokens."""

import re

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import ServeRun

SIZE = re.compile(r"([1-9][0-9]{0,5})\s*[x×]\s*([1-9][0-9]{0,5})")
TOKENS = re.compile(r"[1-9][0-9]{0,6}")


def with_images(found: PresetFile, images: list[str]) -> tuple[PresetFile, str]:
    """The preset with the images' tokens before those of the prompt, and a sentence that says so.

    Args:
        found: the preset.
        images: each `WIDTHxHEIGHT` in pixels, or a number of tokens.

    Raises:
        UserError: one is neither, or the model or the run takes no images.
    """
    preset = found.preset
    model, run = preset.model, preset.run
    if not isinstance(model, TransformerModel) or isinstance(run, ServeRun):
        raise UserError(
            "--image adds the tokens of images to run.sequence_length, which "
            + (
                "a server has none of: they are part of run.max_model_len"
                if isinstance(run, ServeRun)
                else "is of text"
            )
        )
    counts = [_tokens_of(image, model) for image in images]
    before = run.sequence_length or 0
    seen = (run.image_tokens or 0) + sum(counts)
    longer = msgspec.structs.replace(run, sequence_length=before + sum(counts), image_tokens=seen)
    changed = msgspec.structs.replace(preset, run=longer)
    listed = " + ".join(f"{count:,}" for count in counts)
    said = f"{listed} of the sequence's tokens are images'"
    if model.tower is None:
        said += "; what their tower holds while it runs is not counted: its sizes are not known"
    return msgspec.structs.replace(found, preset=changed), said


def _tokens_of(image: str, model: TransformerModel) -> int:
    if TOKENS.fullmatch(image.strip()):
        return int(image)
    size = SIZE.fullmatch(image.strip().lower())
    if size is None:
        raise UserError(
            f"--image {image} is neither WIDTHxHEIGHT in pixels, as 1024x768, nor a number of tokens, as 576"
        )
    if model.image_tokens is None:
        raise UserError(
            f"how many tokens an image of {image} takes is not known of this model; say their number: --image 576"
        )
    return model.image_tokens.count(int(size[1]), int(size[2]))
