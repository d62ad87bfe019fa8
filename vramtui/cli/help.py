"""`vramtui help`: how an estimate is made, the keys, and where files are."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from vramtui.cli.common.console import wrapped
from vramtui.cli.options import command_of
from vramtui.core.base.errors import UserError, nearest
from vramtui.core.base.text import printable
from vramtui.core.base.units import GIB, MIB, format_bytes

if TYPE_CHECKING:
    from vramtui.estimators.allocator.caching import CachingAllocator

DEFAULT_PRESET = "llama-3.1-8b-lora"


@command_of
def help(topic: str | None = None, preset: str | None = None, gpu: str | None = None) -> None:  # noqa: A001 - its name
    """Explain how estimates are made, keys, settings and files."""
    lines: Iterable[str] = ()
    if topic is None:
        print("vramtui help estimating [PRESET]   each part of a preset's memory with its arithmetic")
        lines = [f"vramtui help {name:<22} {what}" for name, (what, _) in TOPICS.items()]
        lines.append("vramtui COMMAND --help             a command's options")
    elif topic == "estimating":
        lines = estimating(preset or DEFAULT_PRESET, gpu)
    elif topic == "keys":
        lines = keys(preset or "")
    elif topic in TOPICS and preset is None:
        lines = TOPICS[topic][1]()
    elif topic in TOPICS:
        raise UserError(f"`vramtui help {topic}` takes no further arguments")
    else:
        raise UserError(f"there is no help on {topic!r}{nearest(topic, NAMES)}; topics: {', '.join(NAMES)}")
    for line in lines:
        print(line)


def estimating(preset: str, gpu: str | None) -> Iterator[str]:
    """Every part of a preset's estimate explained, and its arithmetic."""
    from vramtui.cli.estimate import changed_preset, estimates_of
    from vramtui.core.estimate.devices import chosen_device
    from vramtui.core.estimate.explanation import TREE, arithmetic, chapters, peak_sentence

    preset_file, device = changed_preset(preset, []), chosen_device(gpu, None)
    estimate = estimates_of(preset_file, device, None)[0]
    title = f"{printable(preset_file.preset.name)} ({printable(preset_file.key)})"
    yield f"How {title} is estimated on {printable(device.name)}"
    yield from ("", *wrapped(peak_sentence(estimate)))
    for sentence in TREE:
        yield from wrapped(sentence, "  ")
    for chapter in chapters(estimate):
        yield from ("", f"{chapter.title.upper()}: {format_bytes(chapter.at_peak, 2)} at the peak")
        yield from wrapped(chapter.words.what, "  ")
        yield from wrapped(f"Changed by: {chapter.words.changed_by}", "  ")
        yield from wrapped(f"Accuracy: {chapter.words.sure}", "  ")
        for part in chapter.parts:
            yield from wrapped(f"• {arithmetic(part)}", "  ", "      ")
            yield from wrapped(f"held: {part.lifetime}; after: {part.source}", "      ", "      ")
    if estimate.assumptions:
        yield from ("", "ASSUMPTIONS")
        for sentence in estimate.assumptions:
            yield from wrapped(f"- {sentence}", "  ", "    ")


def keys(where: str = "") -> Iterator[str]:
    """Every key of the dashboard, by where it works; with `where` those of one screen or panel."""
    from vramtui.app.help.dialog import every_key  # loads Textual

    every = {title: lines for title, lines in every_key() if where.lower() in title.lower()}
    if not every:
        raise UserError(f"no screen is called {where!r}; there are {', '.join(title for title, _ in every_key())}")
    for title, lines in every.items():
        yield from (title, *(f"  {key:<14} {identity:<24} {what}" for key, identity, what in lines), "")
    yield "The middle column is the name under `[keys]` in the settings file: `vramtui doctor --settings`."


def files() -> Iterator[str]:
    from vramtui.cli.common.settings import cache_dir, data_dir, state_dir
    from vramtui.core.schema.settings import CONFIG
    from vramtui.presets import config_dir

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


GROWING = tuple(size * MIB for size in (20, 24, 28, 32, 36, 40, 44, 48))
CARD, SMALL_CARD, PIECE = 80 * GIB, 1000 * MIB, 7 * MIB
CELLS = 16


def page(topic: str) -> Iterator[str]:
    """A page of help.txt. What it shows of the allocator is computed by the allocator itself."""
    from vramtui.estimators.allocator.caching import AllocatorOutOfMemoryError, CachingAllocator
    from vramtui.estimators.allocator.config import AllocatorConfig

    text = Path(__file__).with_name("help.txt").read_text(encoding="utf-8")
    for line in text.partition(f"\n== {topic}\n")[2].partition("\n== ")[0].splitlines():
        first, _, rest = line.rpartition("¦")
        if line == "{picture}":
            yield from _picture(CachingAllocator(CARD))
        elif line == "{fragments}":  # a GPU full of blocks with gaps that are too small
            memory, blocks = CachingAllocator(SMALL_CARD), 0
            with suppress(AllocatorOutOfMemoryError):
                while memory.malloc(PIECE):
                    blocks += 1
            free = SMALL_CARD - memory.stats.allocated
            yield from wrapped(
                f"Fragments: on a GPU of {format_bytes(SMALL_CARD)}, {blocks} tensors of {format_bytes(PIECE)} fill "
                f"every segment of 20 MiB with two, and the next runs out of memory with {format_bytes(free)} free, "
                f"{free / SMALL_CARD:.0%}."
            )
        elif line.startswith("@"):  # memory that is reserved after eight growing requests
            memory = CachingAllocator(CARD, AllocatorConfig.parse(first[1:]))
            for size in GROWING:
                memory.free(memory.malloc(size))
            reserved = format_bytes(memory.stats.reserved)
            yield from wrapped(rest, f"{first[1:] or 'none':<34}{reserved:>12}  ", " " * 48)
        elif not line.startswith("#"):
            yield from wrapped(rest, first, " " * len(first)) if rest else [first]


def _picture(memory: "CachingAllocator") -> Iterator[str]:
    """Three requests and their segments, step by step, with allocated and reserved memory."""

    def row(what: str) -> str:
        drawn = []
        for segment in memory.segments():
            used = sum(block.size for block in segment.blocks if block.number)
            cells = -(-used * CELLS // segment.size)
            drawn.append(f"{format_bytes(segment.size)} [{'#' * cells}{'·' * (CELLS - cells)}]")
        sizes = f"{memory.stats.allocated:>12,}{memory.stats.reserved:>14,}"
        return f"{what:<24}{sizes}  {'  '.join(drawn)}".rstrip()

    yield row("nothing yet")
    small = memory.malloc(1024 * 4)
    yield row("1,024 numbers of fp32")
    large = memory.malloc(4 * MIB)
    yield row("and 4 MiB")
    memory.free(small)
    yield row("the numbers deleted")
    memory.empty_cache()
    yield row("empty_cache")
    memory.free(large)
    memory.empty_cache()
    yield row("4 MiB deleted, again")


TOPICS: dict[str, tuple[str, Callable[[], Iterator[str]]]] = {
    "phases": ("memory in pretraining, fine-tuning and inference", partial(page, "phases")),
    "allocator": ("why memory is reserved, and what each setting does", partial(page, "allocator")),
    "precisions": ("number formats, mixed precision, loss scaling", partial(page, "precisions")),
    "cache": ("the KV cache: what it is for, and its size", partial(page, "cache")),
    "data": ("host memory of a DataLoader's workers and of pinning", partial(page, "data")),
    "utilization": ("why a GPU is idle, and how the batch changes that", partial(page, "utilization")),
    "keys": ("every key of the dashboard (`help keys watch`: of one screen)", keys),
    "options": ("the options of the dashboard", options),
    "settings": ("an example of the settings file with every setting", settings),
    "files": ("where presets, settings, history and recordings are", files),
}
NAMES = ("estimating", *TOPICS)
