"""`vramtui pick`: the GPU with room for a job, for scripts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vramtui.cli.common.exit_codes import NO, fail, say
from vramtui.cli.options import job_command
from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.core.base.text import brief_command
from vramtui.core.base.units import UNKNOWN, format_bytes, is_size

if TYPE_CHECKING:
    from vramtui.core.observation.readings import Gpu, Sample

MOST_SHOWN = 5  # processes on a chosen GPU


@job_command("gpus")
def pick(
    preset: str | None = None,
    needs: str | None = None,
    settings: list[str] | None = None,
    gpus: int | None = None,
    *,
    uuid: bool = False,
    demo: bool = False,
    json: bool = False,
) -> None:
    """Print the index of the GPU with the most room, for scripts. Exit code 1 if no GPU has enough.

    Indices are nvidia-smi's: also set CUDA_DEVICE_ORDER=PCI_BUS_ID, or use --uuid. MIG instances have only uuids.
    Indices of AMD's GPUs are for ROCR_VISIBLE_DEVICES; a machine with both uses NVIDIA's. The GPU is not claimed:
    `vramtui run --when-fits` does that.

    Example: CUDA_VISIBLE_DEVICES=$(vramtui pick --needs 38GiB --uuid) python train.py
    """
    from vramtui.cli.estimate import changed_preset
    from vramtui.cli.run.placement import Need, candidates, job_name, need_of, runtime_uuid, usable

    settings = settings or []
    if preset is not None and preset.isdecimal() and len(preset) <= 3:  # `pick 2`
        gpus, preset = gpus or int(preset), None
    elif preset is not None and is_size(preset):  # `pick 24GB`
        needs, preset = needs or preset, None
    if preset is None and settings:
        raise UserError(f"{settings[0].rstrip('=')} is of a job: name its preset or model, vramtui pick MODEL")
    if preset is None and needs is None:
        need = Need(0, None, gpus or 1)
    else:
        need = need_of(needs, None if preset is None else changed_preset(preset, settings), gpus)
    sample = sample_here(demo=demo)
    chosen = candidates(sample, need)[: need.count]
    if len(chosen) < need.count:
        fail(NO, no_room(usable(sample.gpus), len(chosen), need.count))
    if json:
        from vramtui.cli.common.console import print_json

        gpus_chosen = [
            {"index": gpu.index, "uuid": gpu.uuid, "verdict": fit.verdict, "needs": fit.needs, "spare": fit.spare}
            for gpu, fit in chosen
        ]
        print_json({"schema": 1, "gpus": gpus_chosen})
    else:
        print(",".join((runtime_uuid if uuid else job_name)(gpu, sample.gpus) for gpu, _ in chosen))
    for gpu, _ in chosen:
        jobs = [process for process in gpu.processes if "C" in process.type]
        for process in sorted(jobs, key=lambda one: -(one.used_memory or 0))[:MOST_SHOWN]:
            what = f"pid {process.pid} ({process.user or UNKNOWN}), {format_bytes(process.used_memory)}"
            say(f"also on GPU {gpu.index}: {what}: {brief_command(process.command_or_name or '')}")


def sample_here(*, demo: bool = False) -> "Sample":
    from vramtui.cli.common.open_source import open_source
    from vramtui.core.observation.readings import EMULATED

    sample = open_source(demo=demo).source.read()
    if sample.source == EMULATED:
        raise SourceFailed("The only GPU here is the simulated one of a `vramtui dry-run`.")
    return sample


def no_room(gpus: "Sequence[Gpu]", free: int, count: int) -> str:
    """Why there is none, with the GPU that comes nearest and the command that waits."""
    most = max(gpus, key=lambda gpu: gpu.memory.free or 0, default=None)
    nearest = "" if most is None else f"; the most is free on GPU {most.index}: {format_bytes(most.memory.free)}"
    waits = "`vramtui run --when-fits -- COMMAND` waits for room"
    return f"{free} of {len(gpus)} GPUs have room, {count} needed{nearest}; {waits}"
