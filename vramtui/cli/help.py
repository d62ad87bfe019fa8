"""`vramtui help`: how the estimate comes about, which keys there are, and where things are kept."""

import shutil
import textwrap
from collections.abc import Callable, Iterator
from typing import Annotated, NamedTuple

import typer

from vramtui.cli.common.exit_codes import exit_on_user_error
from vramtui.cli.completion import beginning, cards, presets
from vramtui.core.base.errors import UserError, nearest
from vramtui.core.base.text import printable

DEFAULT_PRESET = "llama-3.1-8b-lora"
WIDEST = 110


def help(  # noqa: A001 - the command's name
    topic: Annotated[
        str | None,
        typer.Argument(
            metavar="[TOPIC]",
            help="estimating, keys, precisions, files",
            autocompletion=lambda incomplete: beginning(("estimating", *TOPICS))(incomplete),  # noqa: PLW0108 - TOPICS is below
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Argument(
            metavar="[PRESET]", help="What `estimating` is shown on: a name or a path.", autocompletion=presets
        ),
    ] = None,
    gpu: Annotated[str | None, typer.Option(help="The card to calculate for.", autocompletion=cards)] = None,
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
    from vramtui.cli.estimate.command import changed_preset, estimates_of  # noqa: PLC0415 - slow to load
    from vramtui.core.base.units import format_bytes  # noqa: PLC0415 - as above
    from vramtui.core.estimate.devices import chosen_device  # noqa: PLC0415 - as above
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
        yield from _wrapped(f"What moves it: {chapter.words.changed_by}", "  ")
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


class FloatFormat(NamedTuple):
    """Bits of a number's exponent and mantissa beside its sign, bytes in memory, and the largest one."""

    name: str
    exponent: int
    mantissa: int
    bytes: int
    largest: float


def _ieee(name: str, exponent: int, mantissa: int, size: int) -> FloatFormat:
    """One whose largest exponent is kept for infinity (IEEE 754-2019, 3.3; bfloat16 and TF32 have fp32's exponent)."""
    return FloatFormat(name, exponent, mantissa, size, (2 - 2.0**-mantissa) * 2.0 ** (2 ** (exponent - 1) - 1))


FORMATS = (
    _ieee("fp64", 11, 52, 8),
    _ieee("fp32", 8, 23, 4),
    _ieee("tf32", 8, 10, 4),
    _ieee("bf16", 8, 7, 2),
    _ieee("fp16", 5, 10, 2),
    _ieee("fp8 e5m2", 5, 2, 1),
    # It has no infinity, and of its largest exponent only the last number is none (Micikevicius et al. 2022, table 1).
    FloatFormat("fp8 e4m3", 4, 3, 1, 448.0),
)
TF32 = (
    "TF32 is a way to compute, not to keep: a product takes fp32 numbers from memory, 4 bytes each, and uses 19 of "
    "their 32 bits. It saves time and no memory."
)
SUMS = (
    "Products of fp16, bf16 and fp8 numbers are added up in fp32. The sums stand in registers until the result is "
    "rounded; they take no memory of the card."
)
SCALING = (
    "Gradients below the smallest number of fp16 become 0. Loss scaling multiplies the loss, and so every gradient, by "
    "a large factor before the backward pass, and divides the gradients by it before the step: torch's GradScaler "
    "begins at 65,536 and keeps the factor and a counter on the card, a block of 512 bytes each. bf16 has fp32's "
    "exponent and needs none."
)
MIXED = "Mixed precision keeps fp32 weights beside copies in 16 bits, for updates too small for 16 bits are lost."


def precisions() -> Iterator[str]:
    """Each number format bit by bit, and what is kept and what is computed in which."""
    yield f"{'FORMAT':<10}{'SIGN':>5}{'EXPONENT':>10}{'MANTISSA':>10}{'BYTES':>7}{'LARGEST':>13}{'SMALLEST':>11}"
    for one in FORMATS:
        least = 2.0 ** (2 - 2 ** (one.exponent - 1)) * 2.0**-one.mantissa
        yield (
            f"{one.name:<10}{1:>5}{one.exponent:>10}{one.mantissa:>10}{one.bytes:>7}{one.largest:>13.5g}{least:>11.2g}"
        )
    yield ""
    for sentence in (TF32, SUMS, SCALING, MIXED):
        yield from _wrapped(sentence)


TOPICS: dict[str, tuple[str, Callable[[], Iterator[str]]]] = {
    "keys": ("every key of the dashboard, and its name for the settings", keys),
    "precisions": ("number formats bit by bit, and what is kept and computed in which", precisions),
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
