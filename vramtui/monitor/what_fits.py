"""The other way round: which models that are known offline fit a GPU, in which quantizations, with how much context."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.units import GIB, UNKNOWN, format_bytes, format_gib
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.fits import largest, search_largest
from vramtui.core.observation.readings import Gpu
from vramtui.core.observation.snapshot import device_of
from vramtui.core.schema.models import TransformerModel
from vramtui.core.schema.preset import Preset, PresetFile
from vramtui.core.schema.workload import ServeRun, Workload, own_length
from vramtui.estimators.analytic import ANALYTIC
from vramtui.estimators.analytic.serving.vllm import RELEASES
from vramtui.estimators.methods import DEFAULT
from vramtui.estimators.planner.planner import Correction
from vramtui.models.stores.resolve import POPULAR, HubConfig, configs_on_hub, names_on_hub
from vramtui.presets.importers.flags import whole
from vramtui.presets.job_flags import asked_kind, flag_named
from vramtui.presets.library import PresetLibrary
from vramtui.presets.model_presets import PUBLISHED, preset_of_known, preset_of_values
from vramtui.presets.named_presets import preset_named
from vramtui.presets.overrides import apply_overrides

USUAL_SHARE = RELEASES[0].share
BEYOND_SHARE = GIB  # left to vLLM beyond its share where other processes hold memory
STEP = 1024  # tokens: contexts are searched in these steps
LEAST_CONTEXT = 4096  # tokens that a model has to have room for if nothing else is asked
LONGEST = 1 << 20  # tokens, of a model without a limit of its own
LEAST_BYTES = 0.4  # of each parameter in 4 bits, as the embedding may stay in host memory: less is not estimated
AS_PUBLISHED = ("PUBLISHED", "")
GGUF = (("Q4_K_M", "q4_k_m"), ("Q6_K", "q6_k"), ("Q8_0", "q8_0"), ("F16", "none"))
POOLED = (("4 BITS", "int4"), ("FP8", "fp8"), AS_PUBLISHED)
# By engine or kind of run: titles of columns and quantizations; each takes more than the one before.
QUANTIZATIONS: dict[str, tuple[tuple[str, str], ...]] = {
    **dict.fromkeys(("llama.cpp", "ollama"), GGUF),
    **dict.fromkeys(("vllm", "sglang"), POOLED),
    "infer": (("NF4", "nf4"), ("INT8", "int8"), AS_PUBLISHED),
}


class Room(msgspec.Struct, frozen=True):
    """The memory for one more process, which `device` has as its total. vLLM takes a share of the `whole` GPU."""

    name: str
    device: Device
    whole: int


def room_of(device: Device) -> Room:
    """The memory of a card on which nothing runs."""
    return Room(f"{device.name}, {format_bytes(device.total_memory)}", device, device.total_memory)


def room_on(gpu: Gpu) -> Room | None:
    """The memory that is free on a GPU now; None if that is unknown or nothing."""
    if not gpu.memory.free or gpu.state != "ok":
        return None
    device = device_of(gpu)
    name = f"GPU {gpu.index} now, {format_bytes(gpu.memory.free)} free of {format_bytes(device.total_memory)}"
    return Room(name, msgspec.structs.replace(device, total_memory=gpu.memory.free), device.total_memory)


class Question(msgspec.Struct, frozen=True):
    """A job without its model: settings, title and quantization of each column, and the tokens that have to fit."""

    title: str
    settings: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    context: int
    gpus: int = 1

    @property
    def words(self) -> str:
        """The job, and the meaning of the table's numbers."""
        return (
            f"{self.title}, room for {self.context:,} tokens or more. Columns: the longest context in steps of {STEP:,}"
            " tokens, > where the model's own length ends before the memory."
        )


def question_of(settings: Sequence[str], gpus: int = 1) -> Question:
    """The job of these settings: llama.cpp if they name neither a server nor a run.

    Raises:
        UserError: two of them contradict, the context is not a number of tokens, or llama.cpp would need several GPUs.
    """
    given = {flag.name: one for one in settings if one[:2] == "--" and (flag := flag_named(one.partition("=")[0]))}
    flags = {name: flag for name in given if (flag := flag_named(name))}
    kind, context, rest = asked_kind(flags), LEAST_CONTEXT, [one for one in settings if one != given.get("seq-len")]
    if "seq-len" in given:
        tokens = whole(given["seq-len"].partition("=")[2])
        if tokens is None:
            raise UserError(f"{given['seq-len'].replace('=', ' ')}: write a number of tokens, as 8192 or 32k")
        context = int(tokens)
    engine = "" if kind else "llama.cpp"
    if kind == "serve":
        engine = flags["serve"].value_of(given["serve"].partition("=")[2])
    elif kind is None:
        rest.insert(0, "--serve=llama.cpp")
    titles = {"train": "training", "infer": "generation in PyTorch", "vllm": "vLLM", "sglang": "SGLang"}
    title = titles.get(engine or kind or "", engine)
    columns = QUANTIZATIONS.get(engine or kind or "", (("WEIGHTS", ""),))
    if "qlora" in given or "lora" in given:
        title, columns = ("QLoRA", (("NF4", ""),)) if "qlora" in given else ("LoRA", (("BF16", ""),))
    if "quant" in given:
        columns = ((given["quant"].partition("=")[2].upper(), ""),)
    if gpus > 1:
        if engine in {"llama.cpp", "ollama"}:
            raise UserError(f"llama.cpp's share of each GPU is not calculated: add --serve vllm for {gpus} GPUs")
        rest.append(f"--gpus={gpus}")
        title += f" over {gpus} GPUs"
    return Question(title, tuple(rest), columns, context, gpus)


class KnownModel(NamedTuple):
    """A model by its name on the Hub, its number of parameters, and a preset's key or a config that describe it."""

    parameters: int
    name: str
    source: str | HubConfig


def known_models(library: PresetLibrary) -> list[KnownModel]:
    """The models of the Hub that are known offline, the largest first; of names with one description the best known."""
    places = {name: at for at, name in enumerate(POPULAR)}

    def place(name: str) -> int:
        return places.get(name.partition("/")[2], len(places))

    by_key: dict[str, list[str]] = {}
    for name, key in names_on_hub().values():
        by_key.setdefault(key, []).append(name)
    rows = {id(row): row for _, row in configs_on_hub().values()}
    models = [KnownModel(row.parameters, min(row.names, key=place), row) for row in rows.values()]
    for key, names in by_key.items():
        model = library.bundled(key).preset.model
        if isinstance(model, TransformerModel) and model.parameters:
            models.append(KnownModel(model.parameters, min(names, key=place), key))
    return sorted(models, key=lambda one: (-one.parameters, place(one.name)))


class ModelFit(msgspec.Struct, frozen=True):
    """A model that fits.

    Attributes:
        own: the longest sequence that it was made for; None if it does not say.
        contexts: for each quantization the longest context; None if the one that was asked does not fit.
        needs: bytes of the process with the context that was asked, in the last quantization that fits.
    """

    name: str
    parameters: int
    own: int | None
    contexts: tuple[int | None, ...]
    needs: int


def headings_of(question: Question) -> tuple[str, ...]:
    """The headings of `row_of`; all columns but the first are numbers."""
    return ("MODEL", "PARAMETERS", "NEEDS GiB", *(title for title, _ in question.columns))


def row_of(fit: ModelFit) -> tuple[str, ...]:
    """A model in a table."""
    contexts = (
        UNKNOWN if one is None else f"{'>' if one == (fit.own or LONGEST) else ''}{one:,}" for one in fit.contexts
    )
    return (fit.name, f"{fit.parameters / 1e9:.1f} B", format_gib(fit.needs), *contexts)


def preset_that_fits(question: Question, fit: ModelFit) -> PresetFile:
    """The model as a preset: in the last quantization that fits, with the longest context that fits then."""
    quantization, context = next(
        (value, tokens)
        for (_, value), tokens in reversed([*zip(question.columns, fit.contexts, strict=True)])
        if tokens is not None
    )
    preset_file = preset_named(fit.name, PresetLibrary())
    more = [f"run.quantization={quantization}"] if quantization else []
    settings = (*question.settings, *more, f"--seq-len={context}")
    return msgspec.structs.replace(preset_file, preset=apply_overrides(preset_file.preset, settings))


def models_that_fit(question: Question, room: Room) -> Iterator[ModelFit]:
    """The models that fit in at least one quantization, the largest first; of several with one shape the best known.

    Raises:
        UserError: the settings are not possible for any model.
    """
    library, seen, refused, is_possible = PresetLibrary(), set[object](), "", False
    for one in known_models(library):
        if one.parameters * LEAST_BYTES > room.device.total_memory * question.gpus:
            continue
        preset = (
            preset_of_known(one.name, library.bundled(one.source))
            if isinstance(one.source, str)
            else preset_of_values(one.name, one.source.config)
        )
        # Towers and encoders generate no tokens.
        shape = isinstance(preset.model, TransformerModel) and msgspec.structs.replace(preset.model, parameters=None)
        if not shape or shape in seen or not getattr(preset.run, "new_tokens", 0):
            continue
        if preset.run.quantization not in {None, *PUBLISHED}:  # a copy of another model
            continue
        seen.add(shape)
        try:
            fit = _fit_of(one, preset, question, room)
        except UserError as error:
            refused = refused or str(error)
            continue
        is_possible = True
        if fit is not None:
            yield fit
    if refused and not is_possible:
        raise UserError(refused)


def _fit_of(one: KnownModel, preset: Preset, question: Question, room: Room) -> ModelFit | None:
    contexts: list[int | None] = []
    needs, own = 0, None
    for _, quantization in question.columns:
        if None in contexts:  # this one takes more
            contexts.append(None)
            continue
        more = [f"run.quantization={quantization}"] if quantization else []
        workload = apply_overrides(preset, (*question.settings, *more)).workload
        if isinstance(workload.run, ServeRun) and workload.run.gpu_memory_utilization is None:
            free = room.device.total_memory
            share = USUAL_SHARE if room.whole == free else min(USUAL_SHARE * room.whole, free - BEYOND_SHARE) / free
            workload = workload.with_run(gpu_memory_utilization=max(0.01, share))
        own = own_length(workload)
        if own is not None and own < question.context:
            return None
        context, size = _longest(workload, question.context, own or LONGEST, room.device) or (None, 0)
        contexts.append(context)
        needs = size or needs
    return ModelFit(one.name, one.parameters, own, tuple(contexts), needs) if needs else None


def _longest(workload: Workload, least: int, most: int, device: Device) -> tuple[int, int] | None:
    """The longest context from `least` to `most` and the bytes of the process with `least`; None if that does not fit.

    A job that has to be simulated is searched by quick figures, and what they find is simulated.
    """
    key, room = "max_model_len" if isinstance(workload.run, ServeRun) else "sequence_length", device.total_memory

    def quick(tokens: int) -> int | None:
        try:
            return ANALYTIC.estimate(workload.with_run(**{key: tokens}), device).process
        except UserError:
            return None

    def exact(tokens: int) -> int | None:
        """Bytes; None if they are too many. It is not simulated if its lower bound is too large already."""
        changed = workload.with_run(**{key: tokens})
        try:
            if (DEFAULT.at_least(changed, ANALYTIC.estimate(changed, device)) or 0) > room:
                return None
            size = DEFAULT.estimate(changed, device).process
        except UserError:
            return None
        return size if size <= room else None

    size = exact(least)
    if size is None:
        return None
    if exact(most) is not None:
        return most, size
    correction = Correction(size, quick(least) or size)

    def needs(steps: int) -> int | None:
        fast = quick(steps * STEP)
        return None if fast is None else correction.moved(fast)

    low, high = -(-least // STEP), most // STEP
    steps = largest(needs, search_largest(room, low, most=high, known={low: needs(low), high: needs(high)}))
    while steps > low and exact(steps * STEP) is None:
        steps -= max(1, (steps - low) // 16)
    return max(steps * STEP, least), size
