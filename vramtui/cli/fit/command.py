"""`vramtui fit`: how large a job may be on a card, and what to change where it is too large."""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from vramtui.cli.common.console import print_json, print_table, print_wrapped, text_width
from vramtui.cli.common.exit_codes import NO, exit_by, exit_on_user_error, go_on_unread
from vramtui.cli.common.shared_job import shared_over
from vramtui.cli.estimate.command import changed_preset, naming_setting
from vramtui.cli.options import MODELS, CardOptions, JobFile, Json, Settings, command_of, job_flags, presets
from vramtui.core.base.errors import UserError
from vramtui.core.base.units import UNKNOWN, format_bytes, format_column, unit_of
from vramtui.core.estimate.devices import Device, chosen_device
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import Parallel, Workload, beyond_own_length
from vramtui.estimators.analytic import ANALYTIC
from vramtui.estimators.planner.card_table import SharedJob, answer_for, shared_job
from vramtui.estimators.planner.mitigations import Mitigation
from vramtui.estimators.planner.planner import Edge, Plan, Planner, key_in_full, worthwhile


@dataclass(frozen=True, kw_only=True)
class FitOptions(CardOptions):
    """What `vramtui fit` takes."""

    preset: Annotated[list[str], typer.Argument(metavar="PRESET...", help=MODELS, autocompletion=presets)]
    vary: Annotated[str | None, typer.Option(metavar="KEY", help="The key to maximise; run.batch_size by default.")] = (
        None
    )
    over: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=FROM:TO[:STEP]", help="Given twice: a map of what fits over two values."),
    ] = None
    settings: Settings = None
    job_file: JobFile = None
    sbatch: Annotated[
        bool, typer.Option("--sbatch", help="Resource lines for Slurm: the smallest allocation of --gpu that holds it.")
    ] = False
    per_node: Annotated[int, typer.Option(min=1, max=64, help="With --sbatch: GPUs that a node has.")] = 8
    gres_type: Annotated[
        str | None, typer.Option(metavar="TYPE", help="With --sbatch: the site's name for that GPU (`sinfo -o %G`).")
    ] = None
    json: Json = False


@command_of(FitOptions, flags=job_flags("gpus"))
def fit(options: FitOptions) -> None:
    """The largest batch that fits, what each change would free, and the cheapest way to make it fit.

    Without a card: which card do I need? Every card that is known, for one preset or for several beside each other.

    Exit code 1 when the preset as it stands does not fit; without a card, when it fits none.
    """
    with exit_on_user_error():
        changed = [changed_preset(one, options.settings or [], options.job_file) for one in options.preset]
        if not (options.asks or options.over or options.vary or options.gpus or options.sbatch):
            _cards(changed, json=options.json)
            return
        if not options.asks:
            raise UserError("name the card to fit: --gpu H200, or --memory 24GiB")
        if len(changed) > 1:
            raise UserError("one preset with a card; without --gpu and --memory several stand beside each other")
        preset_file, device = changed[0], chosen_device(options.gpu, options.memory)
        if options.sbatch:
            if options.json:
                raise UserError("--sbatch prints lines of a batch script, --json one document; ask for one of them")

            print_sbatch(preset_file, device, options.per_node, options.gres_type)
            return
        if options.gpus is not None:
            preset_file = shared_over(preset_file, device, options.gpus)
        if options.over:
            _map(preset_file, device, options.over, json=options.json)
            return
        with naming_setting(preset_file):
            plan = _plan(preset_file, device, options.gpus or 1, options.vary)
        with go_on_unread():
            if options.json:
                print_json(fit_document(preset_file, device, options.gpus or 1, plan))
            else:
                _print_plan(preset_file, device, plan)
        exit_by((plan.fit,))


def _cards(preset_files: Sequence[PresetFile], *, json: bool) -> None:
    """Answer with every card; exit code 1 where a preset fits none of them."""
    from vramtui.cli.fit.tables import cards_document, cards_of, print_cards

    columns = [(one, cards_of(one)) for one in preset_files]
    with go_on_unread():
        if json:
            print_json(cards_document(columns))
        else:
            print_cards(columns)
    if not all(any(one.fit is not None and one.fit.is_enough for one in cards) for _, cards in columns):
        raise typer.Exit(NO)


def _map(preset_file: PresetFile, device: Device, over: list[str], *, json: bool) -> None:
    """Answer with a map; exit code 1 when nothing in it fits."""
    from vramtui.cli.fit.tables import axes_of, map_document, map_of, print_map

    axes = axes_of(over)
    with naming_setting(preset_file):
        grid = map_of(preset_file, device, axes)
    with go_on_unread():
        if json:
            print_json(map_document(preset_file, device, grid))
        else:
            print_map(preset_file, device, grid)
    if not any(any(row) for row in grid.fits):
        raise typer.Exit(NO)


def _plan(preset_file: PresetFile, device: Device, gpus: int, vary: str | None) -> Plan:
    from vramtui.estimators.methods import DEFAULT

    workload = preset_file.preset.workload
    asked = None if vary is None else key_in_full(workload, vary)
    return Planner(ANALYTIC, workload, device, gpus, exact=DEFAULT).plan(asked)


def fit_document(preset_file: PresetFile, device: Device, gpus: int, plan: Plan) -> dict[str, object]:
    """The planner's answer as JSON has it; sizes in bytes, `cheapest` null when nothing is enough."""
    from vramtui.records.documents.estimates import device_document, notes_on

    cheapest = None
    if plan.cheapest is not None:
        cheapest = {
            "levers": [mitigation.name for mitigation in plan.cheapest],
            "changes": {key: value for mitigation in plan.cheapest for key, value in mitigation.changes.items()},
            "process": plan.cheapest_process,
        }
    return {
        "schema": 1,
        "preset": preset_file.key,
        "device": device_document(device),
        "gpus": gpus,
        "fits": plan.fits,
        "verdict": plan.fit.verdict,
        "process": plan.process,
        "spare": plan.fit.spare,
        "vary": plan.edge.key,
        "largest": plan.edge.largest,
        "process_at_largest": plan.edge.process,
        "process_beyond": plan.edge.beyond,
        "reason": plan.edge.reason,
        "also": [
            {"vary": edge.key, "largest": edge.largest, "process_at_largest": edge.process, "reason": edge.reason}
            for edge in plan.also
        ],
        "refusal": plan.reason or None,
        "notes": notes_on(preset_file.preset.workload),
        "levers": [
            {
                "name": effect.mitigation,
                "changes": effect.changes,
                "cost": effect.cost,
                "process": effect.process,
                "frees": effect.frees,
                "fits": effect.fits,
                "largest": effect.largest,
            }
            for effect in plan.effects
        ],
        "cheapest": cheapest,
    }


def _print_plan(preset_file: PresetFile, device: Device, plan: Plan) -> None:
    wide = text_width()
    print_wrapped(plan.fit.line(device.name), wide)
    print_wrapped(preset_file.title, wide)
    for note in (plan.reason, beyond_own_length(preset_file.preset.workload)):
        if note:
            print_wrapped(note, wide)
    for edge in (plan.edge, *plan.also):
        print_wrapped(_edge_sentence(edge), wide)
    if plan.effects:
        print()
        print_wrapped(_cheapest_sentence(plan), wide)
    if effects := worthwhile(plan.effects, plan.process, (plan.edge,)):
        print()
        unit, name = unit_of(max(effect.process for effect in effects))
        largest = f"MAX {plan.edge.key.rsplit('.', maxsplit=1)[-1].upper()}"
        rows = [
            (
                effect.mitigation,
                format_column(effect.frees, unit),
                format_column(effect.process, unit),
                "yes" if effect.fits else "no",
                UNKNOWN if effect.largest is None else f"{effect.largest:,}",
                effect.cost,
            )
            for effect in effects
        ]
        _print_changes(("CHANGE", f"FREES {name}", "PROCESS", "FITS", largest, "COST"), rows, wide)
    sys.stdout.flush()


def _print_changes(headings: tuple[str, ...], rows: Sequence[tuple[str, ...]], wide: int) -> None:
    """A table; where it would be too wide, what a change costs stands below its figures."""
    *figures, last = zip(headings, *rows, strict=True)
    widths = [max(map(len, column)) for column in figures]
    if sum(widths) + 3 * len(widths) + max(map(len, last)) <= wide:
        print_table(headings, rows, right=(1, 2, 4))
        return
    print_table(headings[:-1], [row[:-1] for row in rows], right=(1, 2, 4))
    print()
    for row in rows:
        print_wrapped(f"{row[0]}: {row[-1]}", wide)


def _edge_sentence(edge: Edge) -> str:
    if edge.largest is None:
        return f"{edge.key}: {edge.reason}"
    return f"{edge.key}: at most {edge.largest:,} ({format_bytes(edge.process)}); {edge.reason}"


def _cheapest_sentence(plan: Plan) -> str:
    if plan.fits:
        return "No change needed."
    if plan.cheapest is None:
        return "No set of these changes makes it fit."
    names = " and ".join(mitigation.name for mitigation in plan.cheapest)
    takes = format_bytes(plan.cheapest_process)
    return f"Smallest change that fits: {names} ({takes}).\n  {settings_of(plan.cheapest)}"


def settings_of(mitigations: Sequence[Mitigation]) -> str:
    """The changes as `--set` takes them, ready for a shell."""
    return " ".join(
        f"--set {key}={_toml(value)}" for mitigation in mitigations for key, value in mitigation.changes.items()
    )


def _toml(value: object) -> str:
    """A value as --set reads it, quoted for a shell where it needs to be."""
    if isinstance(value, dict):
        inner = ", ".join(f"{key} = {_inner(part)}" for key, part in value.items())
        return f"'{{{inner}}}'"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _inner(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_inner, value))}]"
    return f'"{value}"' if isinstance(value, str) else str(value).lower()


MOST_NODES = 16
_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def print_sbatch(preset_file: PresetFile, device: Device, per_node: int, kind: str | None) -> None:
    """Print lines for the head of a batch script.

    Args:
        preset_file: the preset.
        device: the card.
        per_node: how many of them a node has at most.
        kind: the site's name for the type of GPU (`sinfo -o %G`); any type where it is None.

    Raises:
        UserError: `kind` is no name of a type.
        typer.Exit: it fits no allocation, which is said on standard error.
    """
    if kind is not None and _TYPE.fullmatch(kind) is None:
        raise UserError(f"--gres-type {kind!r} is no type of GPU; `sinfo -o %G` shows the site's: gpu:h100:4 has h100")
    with naming_setting(preset_file):
        smallest = _smallest(preset_file.preset.workload, device, per_node)
    if smallest is None:
        sys.stderr.write(
            f"vramtui: {preset_file.key} does not fit {device.name} on up to {MOST_NODES} nodes; see `vramtui fit`\n"
        )
        raise typer.Exit(NO)
    count = smallest.cards
    nodes = next(nodes for nodes in range(1, count + 1) if count % nodes == 0 and count // nodes <= per_node)
    each = count // nodes
    gpu = "gpu" if kind is None else f"gpu:{kind}"
    spread = f" with {smallest.words}" if smallest.words else ""
    sizes = f"{format_bytes(smallest.answer.process)} of {format_bytes(device.total_memory)}"
    lines = (
        f"# {preset_file.key} on {device.name}: {sizes} on each GPU predicted{spread}",
        f"#SBATCH --nodes={nodes}",
        f"#SBATCH --ntasks-per-node={each}",
        f"#SBATCH --gres={gpu}:{each}",
    )
    sys.stdout.write("\n".join(lines) + "\n")


def _smallest(workload: Workload, device: Device, per_node: int) -> SharedJob | None:
    """The fewest cards that hold it: as its preset spreads it, or else by FSDP or tensor parallel."""
    from vramtui.estimators.methods import DEFAULT

    ranks = (workload.parallel or Parallel()).ranks
    answer = answer_for(DEFAULT, workload, device)
    if answer.fits:
        return SharedJob("", ranks, workload, answer)
    within = [count for count in (2, 4, 8, 16, 32) if count < per_node]
    for count in (*within, *(per_node * nodes for nodes in (1, 2, 4, 8, MOST_NODES))):
        job = shared_job(DEFAULT, workload, device, count, linked=count <= per_node)
        if job is not None and job.answer.fits:
            return job
    return None
