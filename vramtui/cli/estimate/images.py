"""`--image` and `--audio`: images and sound in each sequence, by their size, their seconds or as a number of tokens."""

import re

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import ServeRun

SIZE = re.compile(r"([1-9][0-9]{0,5})\s*[x×]\s*([1-9][0-9]{0,5})")
TOKENS = re.compile(r"[1-9][0-9]{0,6}")
SECONDS = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)\s*s")


def with_images(preset_file: PresetFile, images: list[str]) -> tuple[PresetFile, str]:
    """The preset with the images' tokens before those of the prompt, and a sentence that says so.

    Args:
        preset_file: the preset.
        images: each `WIDTHxHEIGHT` in pixels, or a number of tokens.

    Raises:
        UserError: one is neither, or the model or the run takes no images.
    """
    model = _reader(preset_file, "--image", "images")
    counts = [_tokens_of(image, model) for image in images]
    return _with_tokens(preset_file, "image_tokens", counts, "images'", known=model.tower is not None)


def with_sound(preset_file: PresetFile, clips: list[str]) -> tuple[PresetFile, str]:
    """The preset with the tokens of sound before those of the prompt, and a sentence that says so.

    Args:
        preset_file: the preset.
        clips: each a number of seconds, as `30s`, or of tokens.

    Raises:
        UserError: one is neither, or the model or the run takes no sound.
    """
    model = _reader(preset_file, "--audio", "sound")
    counts = [_tokens_of_clip(clip, model) for clip in clips]
    return _with_tokens(preset_file, "audio_tokens", counts, "sound's", known=model.audio_tower is not None)


def _reader(preset_file: PresetFile, option: str, what: str) -> TransformerModel:
    """The model, which reads tokens of images or sound with the words."""
    model, run = preset_file.preset.model, preset_file.preset.run
    if isinstance(model, TransformerModel) and not isinstance(run, ServeRun):
        return model
    served = "a server has none of: they are part of run.max_model_len"
    why = served if isinstance(run, ServeRun) else "is of text"
    raise UserError(f"{option} adds the tokens of {what} to run.sequence_length, which {why}")


def _with_tokens(
    preset_file: PresetFile, key: str, counts: list[int], whose: str, *, known: bool
) -> tuple[PresetFile, str]:
    preset, run = preset_file.preset, preset_file.preset.run
    assert not isinstance(run, ServeRun)
    more = {key: (getattr(run, key) or 0) + sum(counts), "sequence_length": (run.sequence_length or 0) + sum(counts)}
    changed = msgspec.structs.replace(preset, run=msgspec.structs.replace(run, **more))
    note = f"{' + '.join(f'{count:,}' for count in counts)} of the sequence's tokens are {whose}"
    if not known:
        note += "; what their tower holds while it runs is not counted: its sizes are not known"
    return msgspec.structs.replace(preset_file, preset=changed), note


def _tokens_of_clip(clip: str, model: TransformerModel) -> int:
    if TOKENS.fullmatch(clip.strip()):
        return int(clip)
    seconds = SECONDS.fullmatch(clip.strip().lower())
    if seconds is None or not float(seconds[1]):
        raise UserError(f"--audio {clip} is neither seconds, as 30s, nor a number of tokens, as 750")
    count = model.audio_tower.tokens(float(seconds[1])) if model.audio_tower is not None else None
    if count is None:
        raise UserError(f"how many tokens {clip} of sound take is not known of this model; say them: --audio 750")
    return count


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
