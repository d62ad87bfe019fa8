"""`vramtui help`: how an estimate is made, the keys, and where files are."""

from collections.abc import Callable, Iterator
from typing import Annotated

import typer

from vramtui.cli.common.console import wrapped
from vramtui.cli.common.exit_codes import exit_on_user_error
from vramtui.cli.options import beginning, cards, presets
from vramtui.core.base.errors import UserError, nearest
from vramtui.core.base.late import late
from vramtui.core.base.text import printable

DEFAULT_PRESET = "llama-3.1-8b-lora"


def help(  # noqa: A001 - the command's name
    topic: Annotated[
        str | None,
        typer.Argument(
            metavar="[TOPIC]",
            help="estimating, allocator, data, utilization …; without one, the list of topics.",
            autocompletion=lambda incomplete: beginning(("estimating", *TOPICS))(incomplete),  # noqa: PLW0108 - TOPICS is below
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Argument(metavar="[PRESET]", help="With `estimating`: a preset's name or path.", autocompletion=presets),
    ] = None,
    gpu: Annotated[str | None, typer.Option(help="The GPU to calculate for.", autocompletion=cards)] = None,
) -> None:
    """Explain how estimates are made, keys, settings and files."""
    with exit_on_user_error():
        for line in _topic(topic, preset, gpu):
            print(line)


def _topic(topic: str | None, preset: str | None, gpu: str | None) -> Iterator[str]:
    if topic is None:
        yield "vramtui help estimating [PRESET]   each part of a preset's memory with its arithmetic"
        for name, (what, _) in TOPICS.items():
            yield f"vramtui help {name:<22} {what}"
        yield "vramtui COMMAND --help             a command's options"
    elif topic == "estimating":
        yield from estimating(preset or DEFAULT_PRESET, gpu)
    elif topic in TOPICS and preset is None:
        yield from TOPICS[topic][1]()
    elif topic in TOPICS:
        raise UserError(f"`vramtui help {topic}` takes no further arguments")
    else:
        known = ("estimating", *TOPICS)
        raise UserError(f"there is no help on {topic!r}{nearest(topic, known)}; topics: {', '.join(known)}")


def estimating(preset: str, gpu: str | None) -> Iterator[str]:
    """Every part of a preset's estimate explained, and its arithmetic."""
    from vramtui.cli.estimate.command import changed_preset, estimates_of
    from vramtui.core.base.units import format_bytes
    from vramtui.core.estimate.devices import chosen_device
    from vramtui.core.estimate.explanation import TREE, arithmetic, chapters, peak_sentence

    preset_file, device = changed_preset(preset, []), chosen_device(gpu, None)
    estimate = estimates_of(preset_file, device, None)[0]
    title = f"{printable(preset_file.preset.name)} ({printable(preset_file.key)})"
    yield f"How {title} is estimated on {printable(device.name)}"
    yield ""
    yield from wrapped(peak_sentence(estimate))
    for sentence in TREE:
        yield from wrapped(sentence, "  ")
    for chapter in chapters(estimate):
        yield ""
        yield f"{chapter.title.upper()}: {format_bytes(chapter.at_peak, 2)} at the peak"
        yield from wrapped(chapter.words.what, "  ")
        yield from wrapped(f"Changed by: {chapter.words.changed_by}", "  ")
        yield from wrapped(f"Accuracy: {chapter.words.sure}", "  ")
        for part in chapter.parts:
            yield from wrapped(f"• {arithmetic(part)}", "  ", "      ")
            yield from wrapped(f"held: {part.lifetime}; after: {part.source}", "      ", "      ")
    if estimate.assumptions:
        yield ""
        yield "ASSUMPTIONS"
        for sentence in estimate.assumptions:
            yield from wrapped(f"- {sentence}", "  ", "    ")


def keys() -> Iterator[str]:
    """Every key of the dashboard, by where it works."""
    from vramtui.app.help.sections import every_key  # loads Textual

    for title, lines in every_key():
        yield title
        yield from (f"  {key:<14} {identity:<24} {what}" for key, identity, what in lines)
        yield ""
    yield "The middle column is the name under `[keys]` in the settings file: `vramtui doctor --settings`."


def files() -> Iterator[str]:
    from vramtui.cli.common.paths import cache_dir, config_dir, data_dir, state_dir
    from vramtui.core.schema.settings import CONFIG

    config, data, state, cache = (printable(str(one())) for one in (config_dir, data_dir, state_dir, cache_dir))
    yield f"{config}/presets/       your presets; $VRAMTUI_CONFIG_DIR moves this folder"
    yield f"{config}/{CONFIG}    settings: `vramtui doctor --settings` shows and checks them"
    yield f"{data}/recordings/      what `r` records in the dashboard"
    yield f"{state}/history.sqlite3  past runs"
    yield f"{cache}/  the compiled driver of dry runs and a list of presets; may be deleted"
    yield "$VRAMTUI_DATA_DIR moves the last three into one folder."


def options() -> Iterator[str]:
    from vramtui.cli.main import program

    program(())(["--help"], prog_name="vramtui", standalone_mode=False)
    yield from ()


def settings() -> Iterator[str]:
    from vramtui.presets.settings import example_settings

    yield from example_settings().splitlines()


TOPICS: dict[str, tuple[str, Callable[[], Iterator[str]]]] = {
    "phases": ("memory in pretraining, fine-tuning and inference", late("vramtui.cli.help.pages:phases")),
    "allocator": ("why memory is reserved, and what each setting does", late("vramtui.cli.help.pages:allocator")),
    "precisions": ("number formats, mixed precision, loss scaling", late("vramtui.cli.help.pages:precisions")),
    "cache": ("the KV cache: what it is for, and its size", late("vramtui.cli.help.pages:cache")),
    "data": ("host memory of a DataLoader's workers and of pinning", late("vramtui.cli.help.pages:data")),
    "utilization": ("why a GPU is idle, and how the batch changes that", late("vramtui.cli.help.pages:utilization")),
    "keys": ("every key of the dashboard, and its name in the settings", keys),
    "options": ("the options of the dashboard", options),
    "settings": ("an example of the settings file with every setting", settings),
    "files": ("where presets, settings, history and recordings are", files),
}
