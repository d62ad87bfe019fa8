"""`vramtui estimate` for people: every part with its arithmetic, as one would check it on paper."""

import os
import sys
import textwrap

import msgspec

from vramtui.cli.common.console import text_width
from vramtui.core.base.late import late
from vramtui.core.base.text import printable
from vramtui.core.base.units import UNKNOWN, format_bytes, format_column, format_percent, unit_of
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import LINES, PHASE_TITLES, TITLES, TOTALS, Estimate, Part
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import InferRun, Parallel, beyond_own_length

# Asked where a card is given.
fit_on = late("vramtui.core.estimate.fits:fit_on")
PIPE_WIDTH = 160
BAR = 30
ALWAYS = ("batch_size", "precision", "optimizer")  # what people ask of a job first
NARROWEST = 40
BOLD, PLAIN = "\x1b[1m", "\x1b[0m"
NUMBERS = "{size:>10}  {exact:>16}  {peak:>10}  "


def print_estimates(
    preset_file: PresetFile, estimates: list[Estimate], device: Device, *, asked: bool, explain: bool = False
) -> None:
    """The answer first. Then the parts of one estimate, with their arithmetic where it is to explain;
    or a line for each of several.
    """
    first = estimates[0]
    if asked:
        workload = preset_file.preset.workload
        _print_wrapped("", fit_on(first, workload, device).line(device.name), strong=True)
        for other in estimates[1:]:
            _print_wrapped("", f"{other.method}: {fit_on(other, workload, device).line(device.name)}")
    else:
        _print_wrapped("", f"needs {format_bytes(first.process, 2)}", strong=True)
    print_job(preset_file, whole=explain)
    if len(estimates) > 1:
        _print_beside(preset_file, estimates)
    elif explain:
        _print_one(first)
    else:
        _print_short(first)
    if isinstance(preset_file.preset.run, InferRun) and not explain:
        _print_wrapped("", "This is inference; for training: --train, or --lora.")
    if not asked:
        major, minor = device.capability
        _print_wrapped(
            "", f"Estimated for compute capability {major}.{minor} ({device.name}); --gpu NAME checks whether it fits."
        )


def print_job(preset_file: PresetFile, *, whole: bool = False) -> None:
    """Print the job's title, notes and settings."""
    from vramtui.presets.reader import is_written

    _print_wrapped("", preset_file.title)
    if preset_file.preset.notes and not is_written(preset_file):
        _print_wrapped("  ", preset_file.preset.notes)
    _print_values(preset_file, whole=whole)
    beyond = beyond_own_length(preset_file.preset.workload)
    if beyond:
        _print_wrapped("", beyond)


def _print_values(preset_file: PresetFile, *, whole: bool) -> None:
    """Print the job's settings; without `whole`, leave out most of those that have their default."""
    workload = preset_file.preset.workload
    table = workload.run
    values = {key: value for key, value in msgspec.to_builtins(table).items() if value is not None}
    if not whole:
        values = _not_by_default(table, values)
    _print_wrapped("  ", ", ".join(f"{key} {_plain(value)}" for key, value in values.items()))
    if preset_file.preset.workload.parallel is not None:
        usual = msgspec.to_builtins(Parallel())
        shared = msgspec.to_builtins(preset_file.preset.workload.parallel)
        chosen = [f"{key} {_plain(value)}" for key, value in shared.items() if value != usual[key]]
        _print_wrapped("  ", f"parallel: {', '.join(chosen) or 'one card'}")


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


def _print_short(estimate: Estimate) -> None:
    """The Ledger with a bar for each line; nothing of the arithmetic."""
    top = estimate.process or 1
    unit, name = unit_of(top)
    print(f"\n{'':<17}{f'in {name}':>11}")
    for line in LINES:
        size = estimate.ledger.bytes_of(line)
        if not size:
            continue
        total = line in TOTALS
        share = "" if total else "█" * round(size * BAR / top) or "▏"
        text = f"{'= ' if total else '  '}{TITLES[line]:<15}{format_column(size, unit):>11}  {share}".rstrip()
        print(_strong(text) if total else text)
    print()
    step = "" if estimate.peak_step is None else f", step {estimate.peak_step + 1}"
    error = "" if estimate.error is None else f"; {_stated(estimate.error, estimate.error_below)}"
    _print_wrapped("", f"{estimate.method}; peak: {PHASE_TITLES[estimate.peak_phase]}{step}{error}")
    context = next((note for note in estimate.assumptions if note.startswith("a context of ")), "")
    if context:  # llama.cpp's; it is often not stated, and follows from the model or the GPU
        _print_wrapped("", context)
    _print_wrapped("", "-v shows the arithmetic and the assumptions.")


def _print_one(estimate: Estimate) -> None:
    step = "" if estimate.peak_step is None else f", step {estimate.peak_step + 1}"
    print(f"\n{estimate.method}; peak of allocated: {PHASE_TITLES[estimate.peak_phase]}{step}\n")
    name_width = max([len(printable(part.name)) for part in estimate.parts] + [len("context")])
    sources = list(dict.fromkeys(part.source for part in estimate.parts))
    unit, name = unit_of(estimate.process or 0)
    numbers = NUMBERS.format(size=f"SIZE {name}", exact="BYTES", peak="AT PEAK")
    arithmetic = "ARITHMETIC [SOURCE]" if name_width + 2 + len(numbers) + NARROWEST <= _columns() else ""
    print(_strong(f"{'PART':<{name_width}}  {numbers}{arithmetic}".rstrip()))
    for part in estimate.parts:
        _print_part(part, name_width, sources.index(part.source) + 1, unit)
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
        _print_timeline(estimate)
    for number, source in enumerate(sources, 1):
        _print_wrapped(f"[{number}] ", source)
    for assumption in estimate.assumptions:
        _print_wrapped("- ", assumption)
    if estimate.error is not None:
        print(f"Stated error: {_stated(estimate.error, estimate.error_below)}.")


def _stated(above: float, below: float | None) -> str:
    """How far the process may be from it, either way."""
    more = f"{above * 100:.1f} % more"
    less = f"{(above if below is None else below) * 100:.1f} % less"
    return f"the process may need up to {more} or {less}"


def _print_part(part: Part, name_width: int, source: int, unit: int) -> None:
    alive = UNKNOWN if part.at_peak == 0 else format_column(part.at_peak, unit)
    numbers = NUMBERS.format(size=format_column(part.bytes, unit), exact=f"{part.bytes:,}", peak=alive)
    start = f"{printable(part.name):<{name_width}}  {numbers}"
    columns = _columns()
    if len(start) + NARROWEST <= columns:
        _print_wrapped(start, f"{part.formula} [{source}]")
    else:
        print(start.rstrip())
        _print_wrapped("    ", f"{part.formula} [{source}]")


def _print_beside(preset_file: PresetFile, estimates: list[Estimate]) -> None:
    measured = preset_file.preset.measured
    truth = measured.process if measured else None
    base = truth or estimates[0].process
    width = max([len(estimate.method) for estimate in estimates] + [len("measured")])
    heads = "".join(f"  {TITLES[line].upper():>10}" for line in TOTALS)
    than = "MEASURED" if truth else estimates[0].method.upper()
    unit, name = unit_of(max((estimate.process or 0 for estimate in estimates), default=0))
    print(f"\nin {name}")
    print(_strong(f"{'METHOD':<{width}}{heads}  {'Δ ' + than:>10}  PEAK"))
    for estimate in estimates:
        sizes = "".join(f"  {format_column(estimate.ledger.bytes_of(line), unit):>10}" for line in TOTALS)
        off = format_percent(estimate.process / base - 1) if base and estimate.process != base else ""
        print(f"{estimate.method:<{width}}{sizes}  {off:>10}  {PHASE_TITLES[estimate.peak_phase]}")
    if measured is not None:
        sizes = "".join(f"  {format_column(getattr(measured, line), unit):>10}" for line in TOTALS)
        print(f"{'measured':<{width}}{sizes}  {'':>10}  {printable(measured.where)}")


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return f"({', '.join(f'{key} {_plain(part)}' for key, part in value.items())})"
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _print_timeline(estimate: Estimate) -> None:
    print(_strong(f"{'STEP':>4}  {'AT THE END OF':<16}{'ALLOCATED':>19}  {'PEAK WITHIN IT':>19}"))
    for moment in estimate.timeline:
        title = PHASE_TITLES[moment.phase]
        print(f"{moment.step + 1:>4}  {title:<16}{moment.allocated:>19,}  {moment.peak_allocated:>19,}")
    print()


def _print_wrapped(start: str, text: str, *, strong: bool = False) -> None:
    """`text` beside `start`, continued below itself at the terminal's edge."""
    indent = " " * len(start)
    filled = textwrap.fill(
        printable(text), _columns(), initial_indent=start, subsequent_indent=indent, break_on_hyphens=False
    )
    print(_strong(filled) if strong else filled)


def _columns() -> int:
    return text_width(PIPE_WIDTH)


def _strong(text: str) -> str:
    return f"{BOLD}{text}{PLAIN}" if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else text
