"""`vramtui fit PRESET --sbatch`: the resource lines of the smallest allocation of Slurm's that holds the job."""

import re
import sys

import typer

from vramtui.cli.common.exit_codes import NO
from vramtui.cli.estimate.command import named
from vramtui.core.base.errors import UserError
from vramtui.core.base.units import format_bytes
from vramtui.core.estimate.devices import Device
from vramtui.core.schema.parallel import Parallel
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import Workload
from vramtui.estimators.planner.card_table import can_share, over_fsdp
from vramtui.estimators.planner.grid import answer_for
from vramtui.estimators.planner.planner import FitResult

MOST_NODES = 16
_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def print_sbatch(found: PresetFile, device: Device, per_node: int, kind: str | None) -> None:
    """Print lines for the head of a batch script.

    Args:
        found: the preset.
        device: the card.
        per_node: how many of them a node has at most.
        kind: the site's name for the type of GPU (`sinfo -o %G`); any type where it is None.

    Raises:
        UserError: `kind` is no name of a type.
        typer.Exit: it fits no allocation, which is said on standard error.
    """
    if kind is not None and _TYPE.fullmatch(kind) is None:
        raise UserError(f"--gres-type {kind!r} is no type of GPU; `sinfo -o %G` shows the site's: gpu:h100:4 has h100")
    with named(found):
        smallest = _smallest(found.preset.workload, device, per_node)
    if smallest is None:
        sys.stderr.write(
            f"vramtui: {found.key} does not fit {device.name} on up to {MOST_NODES} nodes; see `vramtui fit`\n"
        )
        raise typer.Exit(NO)
    count, answer, is_shared = smallest
    nodes = next(nodes for nodes in range(1, count + 1) if count % nodes == 0 and count // nodes <= per_node)
    each = count // nodes
    gpu = "gpu" if kind is None else f"gpu:{kind}"
    spread = f" with FSDP over {count}" if is_shared else ""
    sizes = f"{format_bytes(answer.process)} of {format_bytes(device.total_memory)}"
    lines = (
        f"# {found.key} on {device.name}: {sizes} on each GPU predicted{spread}",
        f"#SBATCH --nodes={nodes}",
        f"#SBATCH --ntasks-per-node={each}",
        f"#SBATCH --gres={gpu}:{each}",
    )
    sys.stdout.write("\n".join(lines) + "\n")


def _smallest(workload: Workload, device: Device, per_node: int) -> tuple[int, FitResult, bool] | None:
    """How many cards, what each holds then, and whether FSDP is needed for it that the preset does not have."""
    from vramtui.estimators.analytic import ANALYTIC  # noqa: PLC0415 - estimators take time to load

    parallel = workload.parallel or Parallel()
    answer = answer_for(ANALYTIC, workload, device)
    if answer.fits:
        return parallel.ranks, answer, False
    if can_share(workload):
        within = [count for count in (1, 2, 4, 8, 16, 32) if count < per_node]
        for count in (*within, *(per_node * nodes for nodes in (1, 2, 4, 8, MOST_NODES))):
            answer = answer_for(ANALYTIC, over_fsdp(workload, count), device)
            if answer.fits:
                return count, answer, True
    return None
