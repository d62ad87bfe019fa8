"""`vramtui help`: how an estimate is made, the keys, and where files are."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from vramtui.cli.common.console import wrapped
from vramtui.cli.common.exit_codes import exit_on_user_error
from vramtui.cli.options import beginning, cards, presets
from vramtui.core.base.errors import UserError, nearest
from vramtui.core.base.text import printable
from vramtui.core.base.units import GIB, MIB, format_bytes

if TYPE_CHECKING:
    from vramtui.estimators.allocator.caching import CachingAllocator

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
    from vramtui.cli.estimate import changed_preset, estimates_of
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
    from vramtui.app.help.dialog import every_key  # loads Textual

    for title, lines in every_key():
        yield title
        yield from (f"  {key:<14} {identity:<24} {what}" for key, identity, what in lines)
        yield ""
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


PARAMETERS = 7_000_000_000
PHASES = (
    ("pretraining", "mixed bf16", "all weights, gradients, moments; large batches and their activations"),
    ("fine-tuning, all of it", "full fp16", "the same, all of it in 16 bits; smaller batches"),
    ("fine-tuning, LoRA", "LoRA", "frozen weights; gradients and moments of the adapters only"),
    ("fine-tuning, QLoRA", "QLoRA", "the same with weights in 4 bits"),
    ("inference", "", "weights, and the KV cache of the requests"),
)
CACHE = (
    (
        "A decoder's token looks only at the tokens before it, so their keys and values never change. With them in a "
        "cache, each new token costs one pass of one token. An encoder's tokens look at all others: it needs no cache."
    ),
    "The cache saves time and costs memory: without it every token computes all tokens before it again.",
)
MADE_ANEW = (
    "generate() keeps it in one tensor per layer, which torch.cat copies for every token; a static cache, or vLLM's "
    "pages, are allocated once."
)
TOKENS = 2048


def phases() -> Iterator[str]:
    """Bytes per parameter in each phase, by the rule of thumb."""
    from vramtui.estimators.rules import BYTES_PER_PARAMETER, WEIGHTS

    yield from wrapped(
        f"Memory by phase for {PARAMETERS / 1e9:g} B parameters; activations come on top, by batch and sequence:"
    )
    yield ""
    yield f"{'PHASE':<24}{'B/PARAMETER':>14}{'GB':>7}  WHAT"
    for title, phase, what in PHASES:
        each = sum(float(size) for size, _ in BYTES_PER_PARAMETER[phase].values()) if phase else float(WEIGHTS["bf16"])
        yield from wrapped(what, f"{title:<24}{each:>14g}{each * PARAMETERS / 1e9:>7.1f}  ", " " * 47)
    yield ""
    yield from wrapped(
        "`vramtui estimate PRESET` shows all of it with activations; -v shows every part with its arithmetic."
    )


def cache() -> Iterator[str]:
    """The purpose and the size of the KV cache."""
    for sentence in CACHE:
        yield from wrapped(sentence)
    yield ""
    again = TOKENS * (TOKENS + 1) // 2
    yield from wrapped(
        f"{TOKENS:,} tokens: {TOKENS:,} passes of one token with it, {again:,} tokens computed without it."
    )
    size = 2 * 32 * 32 * 128 * 2
    yield from wrapped(
        f"Llama 7B in fp16: 2 x 32 layers x 32 heads x 128 x 2 B = {size:,} B per token of a sequence; {TOKENS:,} "
        f"tokens take {format_bytes(size * TOKENS)}."
    )
    yield from wrapped(MADE_ANEW)


class FloatFormat(NamedTuple):
    """Bits of a number's exponent and mantissa (the sign has one), bytes in memory, and the largest number."""

    name: str
    exponent: int
    mantissa: int
    bytes: int
    largest: float


def _ieee(name: str, exponent: int, mantissa: int, size: int) -> FloatFormat:
    """A format whose largest exponent means infinity (IEEE 754-2019, 3.3; bfloat16 and TF32 have fp32's exponent)."""
    return FloatFormat(name, exponent, mantissa, size, (2 - 2.0**-mantissa) * 2.0 ** (2 ** (exponent - 1) - 1))


FORMATS = (
    _ieee("fp64", 11, 52, 8),
    _ieee("fp32", 8, 23, 4),
    _ieee("tf32", 8, 10, 4),
    _ieee("bf16", 8, 7, 2),
    _ieee("fp16", 5, 10, 2),
    _ieee("fp8 e5m2", 5, 2, 1),
    # It has no infinity; only the last number of its largest exponent is NaN (Micikevicius et al. 2022, table 1).
    FloatFormat("fp8 e4m3", 4, 3, 1, 448.0),
)
TF32 = (
    "TF32 is a way to compute, not to store: a product reads fp32 numbers from memory, 4 bytes each, and uses 19 of "
    "their 32 bits. It saves time, not memory."
)
SUMS = (
    "Products of fp16, bf16 and fp8 numbers are added up in fp32. The sums stay in registers until the result is "
    "rounded; they need no GPU memory."
)
SCALING = (
    "Gradients below the smallest number of fp16 become 0. Loss scaling multiplies the loss, and so every gradient, by "
    "a large factor before the backward pass, and divides the gradients by it before the step. bf16 has fp32's "
    "exponent and needs no scaling."
)
STATIC = (
    "Static scaling keeps one factor for the whole training. If it is too large, gradients overflow; if it is too "
    "small, they vanish."
)
DYNAMIC = (  # torch/amp/grad_scaler.py: GradScaler.__init__
    "Dynamic scaling is torch's GradScaler: it starts at 65,536, doubles the factor after 2,000 steps without inf or "
    "NaN, and on the first inf or NaN halves it and skips the step. The factor and its counter are on the GPU, in a "
    "block of 512 bytes each."
)
MIXED = "Mixed precision keeps fp32 weights and copies in 16 bits, because updates too small for 16 bits are lost:"
STEPS = (
    "fp32 weights and two fp32 moments are made: 4 + 8 bytes per parameter",
    "the weights are copied to 16 bits: 2 bytes",
    "forward and backward run in 16 bits: activations, and gradients of 2 bytes per parameter",
    "the optimizer updates the fp32 weights by the 16-bit gradients and the fp32 moments",
    "steps 2 to 4 again for each step: 16 bytes per parameter in all",
)
AUTOCAST = (
    "torch.autocast works in another way (bf16-mixed, fp16-mixed here): weights and gradients are fp32, and 16-bit "
    "copies of the weights exist during a pass, 4 + 4 + 8 bytes per parameter. bf16-master and fp16-master here are "
    "the five steps."
)


def precisions() -> Iterator[str]:
    """Each number format bit by bit, and the formats in which mixed precision stores and computes."""
    yield f"{'FORMAT':<10}{'SIGN':>5}{'EXPONENT':>10}{'MANTISSA':>10}{'BYTES':>7}{'LARGEST':>13}{'SMALLEST':>11}"
    for form in FORMATS:
        least = 2.0 ** (2 - 2 ** (form.exponent - 1)) * 2.0**-form.mantissa
        yield (
            f"{form.name:<10}{1:>5}{form.exponent:>10}{form.mantissa:>10}{form.bytes:>7}{form.largest:>13.5g}{least:>11.2g}"
        )
    yield ""
    for sentence in (TF32, SUMS, SCALING, STATIC, DYNAMIC, MIXED):
        yield from wrapped(sentence)
    for number, step in enumerate(STEPS, 1):
        yield from wrapped(step, f"  {number} ", "    ")
    yield from wrapped(AUTOCAST)


IMAGES = 32 * 3 * 224 * 224 * 4  # a batch of 32 images in fp32
PREFETCH = 2  # batches per worker, by default (torch/utils/data/dataloader.py: DataLoader.__init__)
DATA = (
    (
        "A DataLoader's workers are processes that read and prepare batches and put them into a queue in the host's "
        "shared memory, where the training loop takes them. The queue holds prefetch_factor batches for each worker (2 "
        "by default); when it is full the workers wait, so that host memory is bounded."
    ),
    (
        "pin_memory copies each batch into page-locked memory, which the GPU reads directly while it computes. It "
        "is allocated in powers of two, and other programs cannot use it: for hosts with memory to spare."
    ),
    "This is host memory, not GPU memory: `vramtui dry-run FILE.py` and `vramtui run` show what your own loader keeps.",
)
RANKS = (
    (
        "With DDP every rank has its own loader and workers: ranks x workers x prefetch_factor batches. Read "
        "annotations once, on rank 0, into memory that the others map (torch's share_memory_, numpy.memmap): one "
        "copy, not one per rank."
    ),
    "Read what fits into memory in the dataset's __init__ and not in __getitem__, which runs again for every sample.",
)
IDLE = (
    (
        "`GPU %` in `vramtui ps` and in the dashboard is the share of time in which a kernel ran. If it is low, the "
        "GPU waits for data, or for a host that is busy with other things."
    ),
    (
        "1. Raise the batch until the GPU is nearly full: `vramtui fit PRESET --gpu CARD` finds the largest batch "
        "that fits. Another job in the free half makes both slow."
    ),
    (
        "2. Give the loader more workers, with pin_memory: 4 to 8 at first, 8 to 16 with large batches. Use no more "
        "workers than CPU cores are free; more would only share the same cores."
    ),
    "3. Log, print and compute the remaining time rarely: it costs host time, and .item() waits for the GPU.",
)
BATCH = (
    (
        "A batch of 1 leaves a wide path idle: 1,024 bits take 32 numbers of fp32 at once, {wide} of 16 bits. So half "
        "the precision goes with twice the batch, and then it saves no memory."
    ),
    (
        "Twice the batch means half the iterations per epoch: {samples:,} samples are {first:,} iterations of 32, and "
        "{second:,} of 64. A training run that ends after epochs needs no change; one that ends after iterations takes "
        "twice as long unless you halve their number."
    ),
)
SAMPLES = 1_281_167  # ImageNet's training set (Russakovsky et al. 2015, table 2)


def data() -> Iterator[str]:
    """The host memory of a DataLoader, for a batch of images."""
    for sentence in DATA:
        yield from wrapped(sentence)
    yield ""
    yield f"{'WORKERS':>7}{'BATCHES':>9}{'SHARED MEMORY':>15}   one batch: 32 x 3 x 224 x 224 x 4 B = {IMAGES:,} B"
    for workers in (1, 4, 8, 16):
        ready = workers * PREFETCH
        yield f"{workers:>7}{ready:>9}{format_bytes(ready * IMAGES):>15}"
    yield from wrapped(
        f"page-locked: {format_bytes(1 << (IMAGES - 1).bit_length())} for each of {format_bytes(IMAGES)}"
    )
    yield ""
    for sentence in RANKS:
        yield from wrapped(sentence)


def utilization() -> Iterator[str]:
    """Why a GPU is idle, and how the batch changes that."""
    for sentence in IDLE:
        yield from wrapped(sentence, "", "   " if sentence[:1].isdigit() else "")
    yield ""
    first, second = -(-SAMPLES // 32), -(-SAMPLES // 64)
    for sentence in BATCH:
        yield from wrapped(sentence.format(wide=1024 // 16, samples=SAMPLES, first=first, second=second))


WHY = (
    "PyTorch asks the driver for whole segments and keeps them: cudaMalloc and cudaFree take time and wait for the "
    "GPU; a block in an existing segment costs neither. So more is reserved than allocated, a deleted tensor leaves "
    "its block to the next one, and reserved memory falls only when empty_cache is called or memory runs out."
)
SIZES = (
    "Blocks are whole multiples of 512 bytes. Requests up to 1 MiB share segments of 2 MiB, requests below "
    "10 MiB share segments of 20 MiB; larger ones get their own segment, in steps of 2 MiB."
)
SHARING = (
    "So tensors that are needed at different times share memory: autograd frees each intermediate after its last use, "
    "and its block serves the next request of that size."
)
GROWING = tuple(size * MIB for size in (20, 24, 28, 32, 36, 40, 44, 48))
GROWING_TITLE = "Eight growing requests, 20 to 48 MiB, each freed before the next, under each setting:"
CARD = 80 * GIB
SETTINGS = (
    ("", "freed segments stay, but each is too small for the next request: fragmentation"),
    ("expandable_segments:True", "one segment grows; try this first against fragmentation"),
    (
        "roundup_power2_divisions:4",
        "sizes are rounded up to quarters of a power of two, so that more blocks can be reused",
    ),
    ("max_split_size_mb:32", "blocks above 32 MiB are never split for smaller requests; this may waste or save memory"),
    ("large_segment_size_mb:64", "the segment size for requests of 1 to 10 MiB; 20 MiB by default"),
    (
        "garbage_collection_threshold:0.6",
        "idle blocks are freed above 60 % of the share that per_process_memory_fraction allows; no effect without it",
    ),
)
HOW = (
    "Set them with PYTORCH_CUDA_ALLOC_CONF=KEY:VALUE,KEY:VALUE; `vramtui oom SNAPSHOT.pickle` shows whether memory is "
    "fragmented."
)
WORKSPACES = (
    "cuBLAS's workspaces are allocated as well, one for each thread that multiplies matrices; empty_cache does not "
    "free them. CUBLAS_WORKSPACE_CONFIG=:0:0 removes them and makes products slower."
)
CELLS = 16
SMALL_CARD, PIECE = 1000 * MIB, 7 * MIB


def allocator() -> Iterator[str]:
    """Why memory is reserved, three requests drawn by the allocator itself, and its settings."""
    from vramtui.estimators.allocator.caching import AllocatorOutOfMemoryError, CachingAllocator
    from vramtui.estimators.allocator.config import AllocatorConfig

    for sentence in (WHY, SIZES, SHARING):
        yield from wrapped(sentence)
    yield ""
    yield f"{'':<24}{'ALLOCATED':>12}{'RESERVED':>14}  SEGMENTS: # in use, · free"
    yield from _picture(CachingAllocator(CARD))
    yield ""
    yield from wrapped(GROWING_TITLE)
    yield f"{'SETTING':<34}{'RESERVED':>12}  WHAT IT DOES"
    for setting, what in SETTINGS:
        memory = CachingAllocator(CARD, AllocatorConfig.parse(setting))
        for size in GROWING:
            memory.free(memory.malloc(size))
        yield from wrapped(what, f"{setting or 'none':<34}{format_bytes(memory.stats.reserved):>12}  ", " " * 48)
    yield ""
    memory, blocks = CachingAllocator(SMALL_CARD), 0
    with suppress(AllocatorOutOfMemoryError):
        while memory.malloc(PIECE):
            blocks += 1
    free = SMALL_CARD - memory.stats.allocated
    yield from wrapped(
        f"Fragments: on a GPU of {format_bytes(SMALL_CARD)}, {blocks} tensors of {format_bytes(PIECE)} fill every "
        f"segment of 20 MiB with two, and the next runs out of memory with {format_bytes(free)} free, "
        f"{free / SMALL_CARD:.0%}."
    )
    yield from wrapped(HOW)
    yield from wrapped(WORKSPACES)


def _picture(memory: "CachingAllocator") -> Iterator[str]:
    """Three requests and their segments, step by step."""
    yield _row("nothing yet", memory)
    small = memory.malloc(1024 * 4)
    yield _row("1,024 numbers of fp32", memory)
    large = memory.malloc(4 * MIB)
    yield _row("and 4 MiB", memory)
    memory.free(small)
    yield _row("the numbers deleted", memory)
    memory.empty_cache()
    yield _row("empty_cache", memory)
    memory.free(large)
    memory.empty_cache()
    yield _row("4 MiB deleted, again", memory)


def _row(what: str, memory: "CachingAllocator") -> str:
    """A line with allocated and reserved memory, and a picture of each segment."""
    drawn = []
    for segment in memory.segments():
        used = sum(block.size for block in segment.blocks if block.number)
        cells = -(-used * CELLS // segment.size)
        drawn.append(f"{format_bytes(segment.size)} [{'#' * cells}{'·' * (CELLS - cells)}]")
    line = f"{what:<24}{memory.stats.allocated:>12,}{memory.stats.reserved:>14,}  {'  '.join(drawn)}"
    return line.rstrip()


TOPICS: dict[str, tuple[str, Callable[[], Iterator[str]]]] = {
    "phases": ("memory in pretraining, fine-tuning and inference", phases),
    "allocator": ("why memory is reserved, and what each setting does", allocator),
    "precisions": ("number formats, mixed precision, loss scaling", precisions),
    "cache": ("the KV cache: what it is for, and its size", cache),
    "data": ("host memory of a DataLoader's workers and of pinning", data),
    "utilization": ("why a GPU is idle, and how the batch changes that", utilization),
    "keys": ("every key of the dashboard, and its name in the settings", keys),
    "options": ("the options of the dashboard", options),
    "settings": ("an example of the settings file with every setting", settings),
    "files": ("where presets, settings, history and recordings are", files),
}
