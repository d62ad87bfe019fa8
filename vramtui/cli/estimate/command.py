"""`vramtui estimate`: a job's memory, part by part, and whether it fits a GPU."""

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from vramtui.cli.common.console import print_json, print_table
from vramtui.cli.common.exit_codes import NO, exit_by, exit_on_user_error, for_terminal, go_on_unread
from vramtui.cli.options import CardOptions, Hub, JobFile, JobName, Json, Settings, command_of, job_flags, methods
from vramtui.core.base.errors import UserError
from vramtui.core.base.late import late
from vramtui.core.base.text import printable
from vramtui.core.base.units import UNKNOWN, format_bytes
from vramtui.core.estimate.devices import CannotStartError, Device, chosen_device, sizes_of
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.schema.models import TransformerModel
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import Parallel, ServeRun, TrainRun

if TYPE_CHECKING:
    from vramtui.core.estimate.fits import Fit

# Asked where a card is given.
fit_on: Callable[..., "Fit"] = late("vramtui.core.estimate.fits:fit_on")


SIZE = re.compile(r"([1-9][0-9]{0,5})\s*[x×]\s*([1-9][0-9]{0,5})")
TOKENS = re.compile(r"[1-9][0-9]{0,6}")
SECONDS = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)\s*s")
Images = Annotated[
    list[str] | None,
    typer.Option(metavar="SIZE", help="An image in each sequence: 1024x768, or its tokens: 576. May be repeated."),
]
Sound = Annotated[
    list[str] | None,
    typer.Option(metavar="SECONDS", help="Sound in each sequence: 30s, or its tokens: 750. May be repeated."),
]

Method = Annotated[
    str | None,
    typer.Option(help="simulated (default on one card), analytic, rules, rules:ID, or all.", autocompletion=methods),
]


@dataclass(frozen=True, kw_only=True)
class EstimateOptions(CardOptions):
    """Options of `vramtui estimate`."""

    preset: JobName
    settings: Settings = None
    job_file: JobFile = None
    image: Images = None
    audio: Sound = None
    method: Method = None
    hub: Hub = False
    explain: Annotated[
        bool, typer.Option("--explain", "-v", help="Show every part with its arithmetic and source.")
    ] = False
    json: Json = False


@command_of(EstimateOptions, flags=job_flags("gpus"))
def estimate(options: EstimateOptions) -> None:
    """Estimate a job's memory and whether it fits a GPU. The exit code is 1 if it does not fit."""
    with exit_on_user_error():
        changed = changed_preset(options.preset, options.settings or [], options.job_file, hub=options.hub)
        names = (options.gpu or "").split(",")
        sizes = sizes_of(names[0]) if len(names) == 1 and options.memory is None else ()
        if sizes and (options.json or options.explain or options.method):
            all_sizes = ", ".join(one.name for one in sizes)
            sys.stderr.write(f"vramtui: {names[0]} is {all_sizes}: this is {chosen_device(names[0], None).name}\n")
        elif len(names) > 1 or sizes:
            if options.json or options.memory is not None:
                raise UserError(f"--gpu {options.gpu} names several GPUs: --json and --memory take one")
            _show_devices(changed, sizes or tuple(chosen_device(one, None) for one in names), options.gpus)
            return
        device = chosen_device(options.gpu, options.memory)
        changed = changed if options.gpus is None else shared_over(changed, device, options.gpus)
        preset_file, notes = changed, list[str]()
        for option, given in (("--image", options.image), ("--audio", options.audio)):
            if given:
                preset_file, note = with_media(preset_file, option, given)
                notes.append(note)
        refused = ""
        try:
            answers = estimates_of(preset_file, device, options.method)
        except CannotStartError as error:
            if error.longest is None:
                raise
            # A server that starts with shorter sequences is answered with those.
            refused = f"✗ as it starts: {error}; ✓ with `--max-model-len {error.longest}`"
            preset = preset_file.preset
            shorter = preset.workload.with_run(max_model_len=error.longest).run
            preset_file = msgspec.structs.replace(preset_file, preset=msgspec.structs.replace(preset, run=shorter))
            answers = estimates_of(preset_file, device, options.method)
            notes = [refused, *notes]
        estimates = [msgspec.structs.replace(one, assumptions=(*notes, *one.assumptions)) for one in answers]
        with go_on_unread():
            if options.json:
                from vramtui.records.documents.estimates import estimate_document

                print_json(estimate_document(preset_file, estimates, device if options.asks else None))
            else:
                from vramtui.cli.estimate.text import print_estimates

                if refused:
                    print(for_terminal(refused))
                print_estimates(preset_file, estimates, device, asked=options.asks, explain=options.explain)
        if refused:
            raise SystemExit(NO)
        if options.asks:
            exit_by(fit_of(preset_file, one, device) for one in deciding(estimates))


def _show_devices(preset_file: PresetFile, devices: Sequence[Device], gpus: int | None) -> None:
    """Print a row for each GPU."""
    from vramtui.cli.estimate.text import print_job

    rows, fitting = [], 0
    for device in devices:
        memory = format_bytes(device.total_memory)
        try:
            one = preset_file if gpus is None else shared_over(preset_file, device, gpus)
            fit = fit_of(one, estimates_of(one, device, None)[0], device)
        except CannotStartError as error:
            rows.append((device.name, memory, UNKNOWN, UNKNOWN, f"✗ {error}"))
            continue
        fitting += fit.is_enough
        spare = f"{'-' if fit.spare < 0 else ''}{format_bytes(abs(fit.spare))}"
        rows.append((device.name, memory, format_bytes(fit.needs), spare, f"{fit.sign} {fit.verdict}"))
    with go_on_unread():
        print_table(("GPU", "MEMORY", "NEEDS", "SPARE", ""), rows, right=(1, 2, 3))
        print_job(preset_file)
    if not fitting:
        raise SystemExit(NO)


def with_media(preset_file: PresetFile, option: str, given: list[str]) -> tuple[PresetFile, str]:
    """The preset with the tokens of images or sound before those of the prompt, and a sentence that says so."""
    preset, model, run = preset_file.preset, preset_file.preset.model, preset_file.preset.run
    is_image = option == "--image"
    if not isinstance(model, TransformerModel) or isinstance(run, ServeRun):
        served = "a server has none of: they are part of run.max_model_len"
        raise UserError(
            f"{option} adds the tokens of {'images' if is_image else 'sound'} to run.sequence_length, which "
            f"{served if isinstance(run, ServeRun) else 'is of text'}"
        )
    counts = [_image_tokens(one, model) if is_image else _sound_tokens(one, model) for one in given]
    key = "image_tokens" if is_image else "audio_tokens"
    more = {key: (getattr(run, key) or 0) + sum(counts), "sequence_length": (run.sequence_length or 0) + sum(counts)}
    note = f"{' + '.join(f'{count:,}' for count in counts)} of the sequence's tokens are "
    note += "images'" if is_image else "sound's"
    if (model.tower if is_image else model.audio_tower) is None:
        note += "; what their tower holds while it runs is not counted: its sizes are not known"
    changed = msgspec.structs.replace(preset, run=msgspec.structs.replace(run, **more))
    return msgspec.structs.replace(preset_file, preset=changed), note


def _sound_tokens(clip: str, model: TransformerModel) -> int:
    if TOKENS.fullmatch(clip.strip()):
        return int(clip)
    seconds = SECONDS.fullmatch(clip.strip().lower())
    if seconds is None or not float(seconds[1]):
        raise UserError(f"--audio {clip} is neither seconds, as 30s, nor a number of tokens, as 750")
    count = model.audio_tower.tokens(float(seconds[1])) if model.audio_tower is not None else None
    if count is None:
        raise UserError(f"how many tokens {clip} of sound take is not known of this model; say them: --audio 750")
    return count


def _image_tokens(image: str, model: TransformerModel) -> int:
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


def changed_preset(
    name_or_path: str, settings: list[str], job_file: Path | None = None, *, hub: bool = False
) -> PresetFile:
    """The preset called so, with `--set` applied."""
    from vramtui.presets import PresetLibrary, apply_overrides
    from vramtui.presets.named_presets import preset_asked

    library = PresetLibrary()
    preset_file = preset_asked(name_or_path, library, hub=hub)
    if job_file is not None:
        from vramtui.presets.importers.job_presets import with_job_file

        preset_file = with_job_file(preset_file, job_file, library)
    preset = apply_overrides(preset_file.preset, settings)
    return msgspec.structs.replace(preset_file, preset=preset, settings=(*preset_file.settings, *settings))


def shared_over(preset_file: PresetFile, device: Device, gpus: int) -> PresetFile:
    """The preset on so many GPUs: with other data-parallel ranks if it is spread or names its sharding already. Else
    training is sharded by FSDP and inference by tensor parallel, or the other way if only that fits. The choice is
    shown on standard error.
    """
    preset, name = preset_file.preset, printable(preset_file.key)
    parallel = preset.parallel or Parallel()
    if parallel.ranks == gpus:
        return preset_file
    if parallel.ranks == 1 and parallel.strategy == "ddp" and not parallel.zero_stage:
        run = preset.workload.run
        if isinstance(run, ServeRun) and run.is_llama_cpp:  # its layers are split over GPUs
            split = msgspec.structs.replace(preset, parallel=Parallel(pipeline=gpus), measured=None)
            return msgspec.structs.replace(preset_file, preset=split)
        from vramtui.estimators.methods import DEFAULT
        from vramtui.estimators.planner.card_table import BY_FSDP, TENSOR, answer_for, over_fsdp, shared_job

        shared = shared_job(DEFAULT, preset.workload, device, gpus)
        if shared is None:
            raise UserError(f"{name} cannot be shared over {gpus} GPUs, by neither FSDP nor tensor parallel")
        note = f"is for one GPU; calculated with {shared.words} ({shared.settings})"
        if shared.way == TENSOR and isinstance(preset.run, TrainRun):
            needs = answer_for(DEFAULT, over_fsdp(preset.workload, gpus), device).process
            note += f", as {BY_FSDP} over {gpus} does not fit" + (f": {format_bytes(needs)}" if needs else "")
        changed = shared.workload.parallel
    else:
        others = parallel.ranks // parallel.data
        if gpus % others:
            raise UserError(
                f"{name} shares its job over {parallel.ranks} GPUs, in groups of {others} (tensor, pipeline, context);"
                f" {gpus} is not a multiple of {others}: change parallel with --set"
            )
        data = gpus // others
        note = f"is for {parallel.ranks} GPUs; calculated for {gpus} (--set parallel.data={data})"
        changed = msgspec.structs.replace(parallel, data=data, expert=min(parallel.expert, data))
    sys.stderr.write(f"vramtui: {name} {note}\n")
    return msgspec.structs.replace(preset_file, preset=msgspec.structs.replace(preset, parallel=changed, measured=None))


def estimates_of(preset_file: PresetFile, device: Device, method: str | None) -> list[Estimate]:
    """One estimate, or several side by side with analytic first."""
    from vramtui.estimators.methods import estimates_by

    with naming_setting(preset_file):
        return estimates_by(method, preset_file.preset.workload, device)


@contextmanager
def naming_setting(preset_file: PresetFile) -> Iterator[None]:
    """Put what is to blame before what an estimator has to say: a setting that it speaks of, else the preset's file, or
    the model as it was named.
    """
    try:
        yield
    except UserError as error:
        from vramtui.presets.reader import display_path, is_written

        if isinstance(error, CannotStartError) or str(error).startswith("--"):
            raise
        name = display_path(Path(preset_file.path)) if is_written(preset_file) else printable(preset_file.key)
        setting = next((_option_text(one) for one in reversed(preset_file.settings) if _is_of(str(error), one)), name)
        raise UserError(f"{setting}: {error}") from None


def _option_text(setting: str) -> str:
    """A setting as somebody wrote it: behind --set, or as an option of its own."""
    return printable(setting if setting.startswith("--") else f"--set {setting}")


def _is_of(sentence: str, setting: str) -> bool:
    """Return whether a sentence names the key of a setting."""
    name = setting.partition("=")[0].strip().rpartition(".")[2].lstrip("-").replace("-", "_")
    return re.search(rf"\b{re.escape(name)}\b", sentence) is not None


def fit_of(preset_file: PresetFile, estimate: Estimate, device: Device) -> "Fit":
    """The verdict on the whole process."""
    return fit_on(estimate, preset_file.preset.workload, device)


def deciding(estimates: list[Estimate]) -> list[Estimate]:
    """The estimates that decide the exit code: published rules only if there is no other."""
    return [one for one in estimates if not one.method.startswith("rules")] or estimates
