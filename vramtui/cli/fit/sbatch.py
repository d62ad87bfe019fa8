"""`vramtui fit PRESET --sbatch`: the resource lines of the smallest allocation of Slurm's that holds the job."""

import re
import sys

import typer

from vramtui.cli.common.exit_codes import NO
from vramtui.cli.estimate.command import naming_setting
from vramtui.core.base.errors import UserError
from vramtui.core.base.units import format_bytes
from vramtui.core.estimate.devices import Device
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import Parallel, Workload
from vramtui.estimators.planner.grid import answer_for
from vramtui.estimators.planner.shared_jobs import SharedJob, least_shared

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
    """The fewest cards that hold it: as its preset spreads it, or shared as needs the least of each."""
    from vramtui.estimators.methods import DEFAULT

    ranks = (workload.parallel or Parallel()).ranks
    answer = answer_for(DEFAULT, workload, device)
    if answer.fits:
        return SharedJob("", ranks, workload, answer)
    within = [count for count in (2, 4, 8, 16, 32) if count < per_node]
    for count in (*within, *(per_node * nodes for nodes in (1, 2, 4, 8, MOST_NODES))):
        found = least_shared(DEFAULT, workload, device, count, linked=count <= per_node)
        if found is not None and found.answer.fits:
            return found
    return None
