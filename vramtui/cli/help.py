"""`vramtui help`: how the estimate comes about, which keys there are, and where things are kept."""

import shutil
import textwrap
from collections.abc import Callable, Iterator
from typing import Annotated

import typer

from vramtui.cli.common.exit_codes import exit_on_user_error
from vramtui.core.base.errors import UserError, nearest
from vramtui.core.base.text import printable

DEFAULT_PRESET = "llama-3.1-8b-lora"
WIDEST = 110


def help(  # noqa: A001 - the command's name
    topic: Annotated[str | None, typer.Argument(metavar="[TOPIC]", help="estimating, keys, files")] = None,
    preset: Annotated[
        str | None, typer.Argument(metavar="[PRESET]", help="What `estimating` is shown on: a name or a path.")
    ] = None,
    gpu: Annotated[str | None, typer.Option(help="The card to calculate for.")] = None,
) -> None:
    """Explain: `help estimating [PRESET]` goes through each part of the memory with its arithmetic."""
    with exit_on_user_error():
        for line in _topic(topic, preset, gpu):
            print(line)


def _topic(topic: str | None, preset: str | None, gpu: str | None) -> Iterator[str]:
    if topic is None:
        yield from _topics()
    elif topic == "estimating":
        yield from estimating(preset or DEFAULT_PRESET, gpu)
    elif topic in TOPICS and preset is None:
        yield from TOPICS[topic][1]()
    elif topic in TOPICS:
        raise UserError(f"`vramtui help {topic}` takes no further arguments")
    else:
        known = ("estimating", *TOPICS)
        raise UserError(f"there is no help on {topic!r}{nearest(topic, known)}; topics: {', '.join(known)}")


def _topics() -> Iterator[str]:
    yield "vramtui help estimating [PRESET]   each part of the memory with its arithmetic, on a preset"
    for name, (what, _) in TOPICS.items():
        yield f"vramtui help {name:<22} {what}"
    yield "vramtui COMMAND --help             a command's options"


def estimating(preset: str, gpu: str | None) -> Iterator[str]:
    """Every part of a preset's estimate explained, and its arithmetic.

    Raises:
        UserError: there is no such preset or card, or it cannot be estimated.
    """
    from vramtui.cli.estimate.command import changed_preset, chosen_device, estimates_of  # noqa: PLC0415 - slow to load
    from vramtui.core.base.units import format_bytes  # noqa: PLC0415 - as above
    from vramtui.core.estimate.explanation import TREE, arithmetic, chapters, peak_sentence  # noqa: PLC0415 - as above

    found, device = changed_preset(preset, []), chosen_device(gpu, None)
    estimate = estimates_of(found, device, None)[0]
    yield f"How {printable(found.preset.name)} ({printable(found.key)}) is estimated on {printable(device.name)}"
    yield ""
    yield from _wrapped(peak_sentence(estimate))
    for sentence in TREE:
        yield from _wrapped(sentence, "  ")
    for chapter in chapters(estimate):
        yield ""
        yield f"{chapter.title.upper()}: {format_bytes(chapter.at_peak, 2)} at the peak"
        yield from _wrapped(chapter.words.what, "  ")
        yield from _wrapped(f"What moves it: {chapter.words.lever}", "  ")
        yield from _wrapped(f"How sure: {chapter.words.sure}", "  ")
        for part in chapter.parts:
            yield from _wrapped(f"• {arithmetic(part)}", "  ", "      ")
            yield from _wrapped(f"held: {part.lifetime}; after: {part.source}", "      ", "      ")
    if estimate.assumptions:
        yield ""
        yield "ASSUMPTIONS"
        for sentence in estimate.assumptions:
            yield from _wrapped(f"- {sentence}", "  ", "    ")


def keys() -> Iterator[str]:
    """Every key of the dashboard, by where it works."""
    from vramtui.app.help.sections import every_key  # noqa: PLC0415 - loads Textual

    for title, lines in every_key():
        yield title
        yield from (f"  {key:<14} {identity:<24} {what}" for key, identity, what in lines)
        yield ""
    yield "The middle column is its name under `[keys]` in the settings: `vramtui config edit`."


def files() -> Iterator[str]:
    """Where everything is kept."""
    from vramtui.cli.common.paths import config_dir, data_dir  # noqa: PLC0415 - as above
    from vramtui.core.schema.settings import CONFIG  # noqa: PLC0415 - as above

    config, data = printable(str(config_dir())), printable(str(data_dir()))
    yield f"{config}/presets/       your presets; $VRAMTUI_CONFIG_DIR puts this folder elsewhere"
    yield f"{config}/{CONFIG}    settings: `vramtui config show|check|edit`"
    yield f"{data}/history.sqlite3  past runs; $VRAMTUI_DATA_DIR puts this folder elsewhere"
    yield f"{data}/traces/          finished traces (cache)"
    yield f"{data}/recordings/      what `r` records in the dashboard"


TOPICS: dict[str, tuple[str, Callable[[], Iterator[str]]]] = {
    "keys": ("every key of the dashboard, and its name for the settings", keys),
    "files": ("where presets, settings, history and recordings are", files),
}


def _wrapped(text: str, first: str = "", rest: str | None = None) -> list[str]:
    return textwrap.wrap(
        printable(text),
        min(WIDEST, max(40, shutil.get_terminal_size((WIDEST, 24)).columns)),
        initial_indent=first,
        subsequent_indent=first if rest is None else rest,
        break_on_hyphens=False,
    )
