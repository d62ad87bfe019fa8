"""`vramtui fit`: how large a job may be on a card, and what to change where it is too large."""

import sys
from typing import Annotated

import typer

from vramtui.cli.common.console import print_json, print_table
from vramtui.cli.common.exit_codes import NO, exit_on_user_error
from vramtui.cli.estimate.command import changed_preset, chosen_device, named
from vramtui.core.base.errors import UserError
from vramtui.core.base.units import UNKNOWN, format_bytes
from vramtui.core.estimate.devices import Device
from vramtui.core.schema.preset import PresetFile
from vramtui.estimators.planner.planner import Edge, Plan, Planner


def fit(
    preset: Annotated[str, typer.Argument(metavar="PRESET", help="A preset's name, or a path.")],
    gpu: Annotated[str | None, typer.Option(help="The card: H200, RTX4090 …")] = None,
    memory: Annotated[str | None, typer.Option(metavar="SIZE", help="Or the memory to fit: 24GiB.")] = None,
    gpus: Annotated[int, typer.Option(min=1, max=65536, help="Number of such cards to share the job.")] = 1,
    vary: Annotated[
        str | None, typer.Option(metavar="KEY", help="The key to maximise; run.batch_size by default.")
    ] = None,
    over: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=FROM:TO[:STEP]", help="Given twice: a map of what fits over two values."),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a value: run.batch_size=8.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document, bytes as integers.")] = False,
) -> None:
    """The largest batch that fits, what each change would free, and the cheapest way to make it fit.

    Exit code 1 when the preset as it stands does not fit.
    """
    with exit_on_user_error():
        if gpu is None and memory is None:
            raise UserError("name the card to fit: --gpu H200, or --memory 24GiB")
        found = changed_preset(preset, settings or [])
        device = chosen_device(gpu, memory)
        if over:
            _map(found, device, over, json=json)
            return
        with named(found):
            plan = _plan(found, device, gpus, vary)
        if json:
            print_json(fit_document(found, device, gpus, plan))
        else:
            _print_plan(found, device, plan)
        if not plan.fits:
            raise typer.Exit(NO)


def _map(found: PresetFile, device: Device, over: list[str], *, json: bool) -> None:
    """Answer with a map; exit code 1 when nothing in it fits."""
    from vramtui.cli.fit.grid import map_document, map_of, print_map  # noqa: PLC0415 - only where it is asked for

    with named(found):
        grid = map_of(found, device, over)
    if json:
        print_json(map_document(found, device, grid))
    else:
        print_map(found, device, grid)
    if not any(any(row) for row in grid.fits):
        raise typer.Exit(NO)


def _plan(found: PresetFile, device: Device, gpus: int, vary: str | None) -> Plan:
    from vramtui.estimators.analytic import ANALYTIC  # noqa: PLC0415 - estimators take time to load

    return Planner(ANALYTIC, found.preset.workload, device, gpus).plan(vary)


def fit_document(found: PresetFile, device: Device, gpus: int, plan: Plan) -> dict[str, object]:
    """The planner's answer as JSON has it; sizes in bytes, `cheapest` null when nothing is enough."""
    cheapest = None
    if plan.cheapest is not None:
        cheapest = {
            "levers": [lever.name for lever in plan.cheapest],
            "changes": {key: value for lever in plan.cheapest for key, value in lever.changes.items()},
            "process": plan.cheapest_process,
        }
    return {
        "schema": 1,
        "preset": found.key,
        "device": {"name": device.name, "total_memory": device.total_memory},
        "gpus": gpus,
        "fits": plan.fits,
        "process": plan.process,
        "spare": plan.room - plan.process,
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
        "levers": [
            {
                "name": effect.lever,
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


def _print_plan(found: PresetFile, device: Device, plan: Plan) -> None:
    print(f"{found.preset.name} on {device.name}: {_verdict(plan)}")
    if plan.reason:
        print(plan.reason)
    for edge in (plan.edge, *plan.also):
        print(_edge_sentence(edge))
    if plan.effects:
        print()
        largest = f"MAX {plan.edge.key.rsplit('.', maxsplit=1)[-1].upper()}"
        rows = [
            (
                effect.lever,
                format_bytes(effect.frees),
                format_bytes(effect.process),
                "yes" if effect.fits else "no",
                UNKNOWN if effect.largest is None else f"{effect.largest:,}",
                effect.cost,
            )
            for effect in plan.effects
        ]
        print_table(("CHANGE", "FREES", "PROCESS", "FITS", largest, "COST"), rows, right=(1, 2, 4))
    print()
    print(_cheapest_sentence(plan))
    sys.stdout.flush()


def _verdict(plan: Plan) -> str:
    spare = plan.room - plan.process
    room = f"{format_bytes(plan.process)} of {format_bytes(plan.room)}"
    if plan.fits:
        return f"fits with {format_bytes(spare)} to spare ({room})"
    return f"does not fit, {format_bytes(-spare)} too much ({room})"


def _edge_sentence(edge: Edge) -> str:
    if edge.largest is None:
        return f"{edge.key}: {edge.reason}"
    return f"{edge.key}: at most {edge.largest:,} ({format_bytes(edge.process)}); {edge.reason}"


def _cheapest_sentence(plan: Plan) -> str:
    if plan.fits:
        return "No change needed."
    if plan.cheapest is None:
        return "No set of these changes makes it fit."
    names = " and ".join(lever.name for lever in plan.cheapest)
    settings = " ".join(
        f"--set {key}={_toml(value)}" for lever in plan.cheapest for key, value in lever.changes.items()
    )
    return f"Cheapest to make it fit: {names}, which takes {format_bytes(plan.cheapest_process)}.\n  {settings}"


def _toml(value: object) -> str:
    """A value as --set reads it, quoted for a shell where it needs to be."""
    if isinstance(value, dict):
        inner = ", ".join(f"{key} = {_inner(part)}" for key, part in value.items())
        return f"'{{{inner}}}'"
    return str(value)


def _inner(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_inner, value))}]"
    return f'"{value}"' if isinstance(value, str) else str(value).lower()
