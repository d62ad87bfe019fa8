"""`vramtui estimate`: a job's memory, part by part, and whether it fits a GPU."""

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from vramtui.cli.common.console import filled, print_json, print_table, text_width
from vramtui.cli.common.exit_codes import NO, exit_by, for_terminal, go_on_unread, say
from vramtui.cli.options import job_command
from vramtui.core.base.errors import UserError
from vramtui.core.base.late import late
from vramtui.core.base.text import printable
from vramtui.core.base.units import UNKNOWN, format_bytes, format_column, format_percent, unit_of
from vramtui.core.estimate.devices import CannotStartError, Device, chosen_device, on_card, size_note, sizes_of
from vramtui.core.estimate.estimate import LINES, PHASE_TITLES, TITLES, TOTALS, Estimate
from vramtui.core.schema.models import TransformerModel
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import InferRun, Parallel, ServeRun, TrainRun, beyond_own_length

if TYPE_CHECKING:
    from vramtui.core.estimate.fits import Fit


# Asked where a card is given.
fit_on: Callable[..., "Fit"] = late("vramtui.core.estimate.fits:fit_on")


SIZE = re.compile(r"([1-9][0-9]{0,5})\s*[x×]\s*([1-9][0-9]{0,5})")
TOKENS = re.compile(r"[1-9][0-9]{0,6}")
SECONDS = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)\s*s")


@job_command("gpus")
def estimate(
    *,
    gpu: str | None = None,
    memory: str | None = None,
    gpus: int | None = None,
    preset: str,
    settings: list[str] | None = None,
    job_file: Path | None = None,
    image: list[str] | None = None,
    audio: list[str] | None = None,
    method: str | None = None,
    hub: bool = False,
    explain: bool = False,
    json: bool = False,
) -> None:
    """Estimate a job's memory and whether it fits a GPU. The exit code is 1 if it does not fit."""
    asks = gpu is not None or memory is not None
    changed = changed_preset(preset, settings or [], job_file, hub=hub)
    names = (gpu or "").split(",")
    sizes = sizes_of(names[0]) if len(names) == 1 and memory is None else ()
    if sizes and (explain or method):
        say(size_note(gpu, chosen_device(gpu, None)))
    elif len(names) > 1 or sizes:
        if memory is not None:
            raise UserError(f"--gpu {gpu} names several GPUs: --memory takes one")
        devices = sizes or tuple(chosen_device(one, None) for one in names)
        _show_devices(changed, devices, gpus, json=json)
        return
    device = chosen_device(gpu, memory)
    preset_file, notes = shared_over(on_card(changed, device), device, gpus), list[str]()
    for option, given in (("--image", image), ("--audio", audio)):
        if given:
            preset_file, note = with_media(preset_file, option, given)
            notes.append(note)
    refused = ""
    try:
        answers = estimates_of(preset_file, device, method)
    except CannotStartError as error:
        if error.longest is None:
            raise
        # A server that starts with shorter sequences is answered with those.
        refused = f"✗ does not start with these settings: {error}; ✓ with `--max-model-len {error.longest}`"
        preset_file = preset_file.changed(run=preset_file.preset.workload.with_run(max_model_len=error.longest).run)
        answers = estimates_of(preset_file, device, method)
        notes = [refused, *notes]
    if asks and (shorter := shorter_context(preset_file, fit_of(preset_file, answers[0], device), device)):
        refused = f"✗ does not fit with these settings; {shorter}"
        notes = [refused, *notes]
    estimates = [msgspec.structs.replace(one, assumptions=(*notes, *one.assumptions)) for one in answers]
    with go_on_unread():
        if json:
            from vramtui.records.estimate_document import estimate_document

            print_json(estimate_document(preset_file, estimates, device if asks else None))
        else:
            if refused:
                print(for_terminal(refused))
            print_estimates(preset_file, estimates, device, asked=asks, explain=explain)
    if refused:
        raise SystemExit(NO)
    if asks:
        exit_by(fit_of(preset_file, one, device) for one in deciding(estimates))


def _show_devices(preset_file: PresetFile, devices: Sequence[Device], gpus: int | None, *, json: bool) -> None:
    """Print a row for each GPU, or one document with an answer for each."""
    from vramtui.records.estimate_document import device_document, estimate_document

    rows, answers, fitting, tell = [], [], 0, cache(say)
    for device in devices:
        memory, answer, refusal = format_bytes(device.total_memory), None, None
        try:
            one = shared_over(on_card(preset_file, device), device, gpus, tell)
            estimates = estimates_of(one, device, None)
            fit = fit_of(one, estimates[0], device)
        except CannotStartError as error:
            refusal = str(error)
            rows.append((device.name, memory, UNKNOWN, UNKNOWN, f"✗ {refusal}"))
        else:
            fitting += fit.is_enough
            spare = f"{'−' if fit.spare < 0 else ''}{format_bytes(abs(fit.spare))}"
            verdict = f"{fit.sign} {fit.verdict} {shorter_context(one, fit, device)}".rstrip()
            rows.append((device.name, memory, format_bytes(fit.needs), spare, verdict))
            answer = estimate_document(one, estimates, device)
        answers.append({"device": device_document(device), "answer": answer, "refusal": refusal})
    with go_on_unread():
        if json:
            print_json({"schema": 1, "preset": preset_file.key, "devices": answers})
        else:
            print_table(("GPU", "MEMORY", "NEEDS", "SPARE", ""), rows, right=(1, 2, 3))
            print_job(preset_file)
    if not fitting:
        raise SystemExit(NO)


def with_media(preset_file: PresetFile, option: str, given: list[str]) -> tuple[PresetFile, str]:
    """The preset with the tokens of images or sound before those of the prompt, and a sentence that says so."""
    model, run = preset_file.preset.model, preset_file.preset.run
    is_image = option == "--image"
    if not isinstance(model, TransformerModel) or isinstance(run, ServeRun):
        served = "a server has none of: they are part of run.max_model_len"
        raise UserError(
            f"{option} adds the tokens of {'images' if is_image else 'sound'} to run.sequence_length, which "
            f"{served if isinstance(run, ServeRun) else 'is of text'}"
        )
    tower, counts = model.tower if is_image else model.audio_tower, list[int]()
    for one in given:
        text, count = one.strip().lower(), None
        size = (SIZE if is_image else SECONDS).fullmatch(text)
        if TOKENS.fullmatch(text):
            count = int(text)
        elif size is None or not float(size[1]):
            kinds = ("WIDTHxHEIGHT in pixels, as 1024x768", 576) if is_image else ("seconds, as 30s", 750)
            raise UserError(f"{option} {one} is neither {kinds[0]}, nor a number of tokens, as {kinds[1]}")
        elif is_image and model.image_tokens is not None:
            count = model.image_tokens.count(int(size[1]), int(size[2]))
        elif not is_image and model.audio_tower is not None:
            count = model.audio_tower.tokens(float(size[1]))
        if count is None:
            what = f"an image of {one} takes is not known of this model; say their number: --image 576"
            what = what if is_image else f"{one} of sound take is not known of this model; say them: --audio 750"
            raise UserError(f"how many tokens {what}")
        counts.append(count)
    key = "image_tokens" if is_image else "audio_tokens"
    more = {key: (getattr(run, key) or 0) + sum(counts), "sequence_length": (run.sequence_length or 0) + sum(counts)}
    note = f"{' + '.join(f'{count:,}' for count in counts)} of the sequence's tokens are "
    note += "images'" if is_image else "sound's"
    if tower is None:
        note += "; what their tower holds while it runs is not counted: its sizes are not known"
    return preset_file.changed(run=msgspec.structs.replace(run, **more)), note


def changed_preset(
    name_or_path: str, settings: list[str], job_file: Path | None = None, *, hub: bool = False
) -> PresetFile:
    """The preset called so, with `--set` applied."""
    from vramtui.presets import PresetLibrary, apply_overrides
    from vramtui.presets.named_presets import preset_asked

    library = PresetLibrary()
    preset_file = preset_asked(name_or_path, library, hub=hub)
    if job_file is not None:
        from vramtui.presets.importers.derived import with_job_file

        preset_file = with_job_file(preset_file, job_file, library)
    preset = apply_overrides(preset_file.preset, settings)
    return msgspec.structs.replace(preset_file, preset=preset, settings=(*preset_file.settings, *settings))


def shorter_context(preset_file: PresetFile, fit: "Fit", device: Device) -> str:
    """The longest context with which a server fits, where it does not as it stands; else nothing."""
    run = preset_file.preset.run
    if fit.is_enough or not isinstance(run, ServeRun):
        return ""
    from vramtui.estimators.analytic import ANALYTIC
    from vramtui.estimators.methods import DEFAULT
    from vramtui.estimators.planner.planner import Planner

    most = Planner(ANALYTIC, preset_file.preset.workload, device, exact=DEFAULT).edge("run.max_model_len").largest or 0
    option = f" (OLLAMA_CONTEXT_LENGTH={most // (run.max_num_seqs or 1)})" if run.engine == "ollama" else ""
    return f"✓ with a context of {most:,} tokens{option}" if most else ""


def shared_over(
    preset_file: PresetFile, device: Device, gpus: int | None, tell: Callable[[str], None] = say
) -> PresetFile:
    """The preset on so many GPUs, if that is asked: with other data-parallel ranks if it is spread or names its
    sharding already. Else training is sharded by FSDP and inference by tensor parallel, or the other way if only that
    fits. `tell` gets the sentence that says which it is.
    """
    preset, name = preset_file.preset, printable(preset_file.key)
    parallel = preset.parallel or Parallel()
    if gpus is None or parallel.ranks == gpus:
        return preset_file
    if parallel.ranks == 1 and parallel.strategy == "ddp" and not parallel.zero_stage:
        run = preset.workload.run
        if isinstance(run, ServeRun) and run.is_llama_cpp:  # its layers are split over GPUs
            return preset_file.changed(parallel=Parallel(pipeline=gpus), measured=None)
        from vramtui.estimators.methods import DEFAULT
        from vramtui.estimators.planner.card_table import BY_FSDP, TENSOR, over_fsdp, shared_job
        from vramtui.estimators.planner.planner import answer_for

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
    tell(f"{name} {note}")
    return preset_file.changed(parallel=changed, measured=None)


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
        for setting in reversed(preset_file.settings):
            key = setting.partition("=")[0].strip().rpartition(".")[2].lstrip("-").replace("-", "_")
            if re.search(rf"\b{re.escape(key)}\b", str(error)):
                name = printable(setting if setting.startswith("--") else f"--set {setting}")
                break
        raise UserError(f"{name}: {error}") from None


def fit_of(preset_file: PresetFile, estimate: Estimate, device: Device) -> "Fit":
    return fit_on(estimate, preset_file.preset.workload, device)


def deciding(estimates: list[Estimate]) -> list[Estimate]:
    """The estimates that decide the exit code: published rules only if there is no other."""
    return [one for one in estimates if not one.method.startswith("rules")] or estimates


PIPE_WIDTH = 160
BAR = 30
ALWAYS = ("batch_size", "precision", "optimizer")  # what people ask of a job first
NARROWEST = 40
BOLD, PLAIN = "\x1b[1m", "\x1b[0m"
NUMBERS = "{size:>10}  {exact:>16}  {peak:>10}  "


def print_estimates(
    preset_file: PresetFile, estimates: list[Estimate], device: Device, *, asked: bool, explain: bool = False
) -> None:
    """The answer first. Then the parts of one estimate, with arithmetic to explain it, or a line for each of many."""
    first = estimates[0]
    if asked:
        workload = preset_file.preset.workload
        _print_wrapped("", fit_on(first, workload, device).line(device.name), strong=True)
        for other in estimates[1:]:
            _print_wrapped("", f"{other.method}: {fit_on(other, workload, device).line(device.name)}")
    else:
        pool = isinstance(run := preset_file.preset.run, ServeRun) and not run.is_llama_cpp and device.total_memory
        of = f" of the {format_bytes(pool)} of {device.name}, its share of a GPU" if pool else ""
        _print_wrapped("", f"{'takes' if of else 'needs'} {format_bytes(first.process, 2)}{of}", strong=True)
    print_job(preset_file, whole=explain)
    unit, name = unit_of(max((one.process or 0 for one in estimates), default=0))
    step = "" if first.peak_step is None else f", step {first.peak_step + 1}"
    if len(estimates) > 1:
        measured = preset_file.preset.measured
        truth = measured.process if measured else None
        base = truth or first.process
        width = max([len(estimate.method) for estimate in estimates] + [len("measured")])
        heads = "".join(f"  {TITLES[line].upper():>10}" for line in TOTALS)
        than = "MEASURED" if truth else first.method.upper()
        print(f"\nin {name}")
        print(_strong(f"{'METHOD':<{width}}{heads}  {'Δ ' + than:>10}  PEAK"))
        for estimate in estimates:
            sizes = "".join(f"  {format_column(estimate.ledger.bytes_of(line), unit):>10}" for line in TOTALS)
            off = format_percent(estimate.process / base - 1) if base and estimate.process != base else ""
            print(f"{estimate.method:<{width}}{sizes}  {off:>10}  {PHASE_TITLES[estimate.peak_phase]}")
        if measured is not None:
            sizes = "".join(f"  {format_column(getattr(measured, line), unit):>10}" for line in TOTALS)
            print(f"{'measured':<{width}}{sizes}  {'':>10}  {printable(measured.where)}")
    elif explain:
        print(f"\n{first.method}; peak of allocated: {PHASE_TITLES[first.peak_phase]}{step}\n")
        _print_parts(first, unit, f"SIZE {name}")
    else:
        # The Ledger with a bar for each line.
        top = first.process or 1
        print(f"\n{'':<17}{f'in {name}':>11}")
        for line in LINES:
            size = first.ledger.bytes_of(line)
            if not size:
                continue
            total = line in TOTALS
            share = "" if total else "█" * round(size * BAR / top) or "▏"
            text = f"{'= ' if total else '  '}{TITLES[line]:<15}{format_column(size, unit):>11}  {share}".rstrip()
            print(_strong(text) if total else text)
        print()
        error = "" if first.error is None else f"; {_stated(first.error, first.error_below)}"
        _print_wrapped("", f"{first.method}; peak: {PHASE_TITLES[first.peak_phase]}{step}{error}")
        for note in first.assumptions:  # llama.cpp's context is often not stated, and follows from the model or the GPU
            if note.startswith(("a context of ", "reserved ")):
                _print_wrapped("", note)
        _print_wrapped("", "-v shows the arithmetic and the assumptions.")
    if isinstance(preset_file.preset.run, InferRun) and not explain:
        _print_wrapped("", "This is inference; for training: --train, or --lora.")
    if not asked:
        major, minor = device.capability
        _print_wrapped(
            "", f"Estimated for compute capability {major}.{minor} ({device.name}); --gpu NAME checks whether it fits."
        )


def print_job(preset_file: PresetFile, *, whole: bool = False) -> None:
    """Print the job's title, notes and settings; without `whole`, leave out most of those that have their default."""
    from vramtui.presets.reader import is_written

    _print_wrapped("", preset_file.title)
    workload = preset_file.preset.workload
    if preset_file.preset.notes and not is_written(preset_file):
        _print_wrapped("  ", preset_file.preset.notes)
    values = {key: value for key, value in msgspec.to_builtins(workload.run).items() if value is not None}
    if not whole:
        values = _not_by_default(workload.run, values)
    _print_wrapped("  ", ", ".join(f"{key} {_plain(value)}" for key, value in values.items()))
    if workload.parallel is not None:
        usual, shared = msgspec.to_builtins(Parallel()), msgspec.to_builtins(workload.parallel)
        chosen = [f"{key} {_plain(value)}" for key, value in shared.items() if value != usual[key]]
        _print_wrapped("  ", f"parallel: {', '.join(chosen) or 'one card'}")
    if beyond := beyond_own_length(workload):
        _print_wrapped("", beyond)


def _not_by_default(table: msgspec.Struct, values: dict[str, object]) -> dict[str, object]:
    """Those of a table's `values`, and of the tables' in it, that are not what holds by default."""
    usual = {field.encode_name: field.default for field in msgspec.structs.fields(type(table))}
    chosen: dict[str, object] = {}
    for key, value in values.items():
        inner = getattr(table, key, None)
        if isinstance(value, dict) and isinstance(inner, msgspec.Struct):
            chosen[key] = _not_by_default(inner, value)
        elif key in ALWAYS or value != usual.get(key, msgspec.NODEFAULT):
            chosen[key] = value
    return chosen


def _print_parts(estimate: Estimate, unit: int, size_title: str) -> None:
    """Every part with its arithmetic and source, the totals, the phases and the assumptions."""
    name_width = max([len(printable(part.name)) for part in estimate.parts] + [len("context")])
    sources = list(dict.fromkeys(part.source for part in estimate.parts))
    numbers = NUMBERS.format(size=size_title, exact="BYTES", peak="AT PEAK")
    arithmetic = "ARITHMETIC [SOURCE]" if name_width + 2 + len(numbers) + NARROWEST <= text_width(PIPE_WIDTH) else ""
    print(_strong(f"{'PART':<{name_width}}  {numbers}{arithmetic}".rstrip()))
    for part in estimate.parts:
        alive = UNKNOWN if part.at_peak == 0 else format_column(part.at_peak, unit)
        sizes = NUMBERS.format(size=format_column(part.bytes, unit), exact=f"{part.bytes:,}", peak=alive)
        start = f"{printable(part.name):<{name_width}}  {sizes}"
        if len(start) + NARROWEST > text_width(PIPE_WIDTH):
            print(start.rstrip())
            start = "    "
        _print_wrapped(start, f"{part.formula} [{sources.index(part.source) + 1}]")
    print("─" * (name_width + len(numbers)))
    for line in TOTALS:
        size = estimate.ledger.bytes_of(line)
        exact = UNKNOWN if size is None else f"{size:,}"
        print(
            _strong(
                f"{TITLES[line]:<{name_width}}  " + NUMBERS.format(size=format_column(size, unit), exact=exact, peak="")
            ).rstrip()
        )
    print()
    if estimate.timeline:
        print(_strong(f"{'STEP':>4}  {'AT THE END OF':<16}{'ALLOCATED':>19}  {'PEAK WITHIN IT':>19}"))
        for moment in estimate.timeline:
            title = PHASE_TITLES[moment.phase]
            print(f"{moment.step + 1:>4}  {title:<16}{moment.allocated:>19,}  {moment.peak_allocated:>19,}")
        print()
    for number, source in enumerate(sources, 1):
        _print_wrapped(f"[{number}] ", source)
    for assumption in estimate.assumptions:
        _print_wrapped("- ", assumption)
    if estimate.error is not None:
        print(f"Stated error: {_stated(estimate.error, estimate.error_below)}.")


def _stated(above: float, below: float | None) -> str:
    """How far the process may be from it, either way."""
    below = above if below is None else below
    return f"the process may need up to {above * 100:.1f} % more or {below * 100:.1f} % less"


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return f"({', '.join(f'{key} {_plain(part)}' for key, part in value.items())})"
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _print_wrapped(start: str, text: str, *, strong: bool = False) -> None:
    """`text` after `start`, continued below itself at the terminal's edge."""
    lines = filled(text, text_width(PIPE_WIDTH), start, " " * len(start))
    print(_strong(lines) if strong else lines)


def _strong(text: str) -> str:
    return f"{BOLD}{text}{PLAIN}" if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else text
