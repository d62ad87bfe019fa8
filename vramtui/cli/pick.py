"""`vramtui pick`: the GPU with room for a job, for scripts."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from vramtui.cli.common.exit_codes import NO, exit_on_user_error, fail, for_terminal
from vramtui.cli.options import MODELS, Json, Settings, command_of, job_flags, presets
from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.core.base.text import brief_command
from vramtui.core.base.units import UNKNOWN, format_bytes, is_size

if TYPE_CHECKING:
    from vramtui.core.observation.readings import Gpu, Sample

MOST_SHOWN = 5  # processes on a chosen GPU


@dataclass(frozen=True, kw_only=True)
class PickOptions:
    preset: Annotated[
        str | None, typer.Argument(metavar="[PRESET]", help=MODELS, autocompletion=presets, show_default=False)
    ] = None
    needs: Annotated[
        str | None,
        typer.Option("--needs", "--memory", "--free", metavar="SIZE", help="The memory it needs on each GPU: 38GiB."),
    ] = None
    settings: Settings = None
    gpus: Annotated[
        int | None,
        typer.Option("--gpus", "--count", "-n", min=1, help="Number of GPUs; 1, or the preset's number, by default."),
    ] = None
    uuid: Annotated[bool, typer.Option("--uuid", help="Print uuids instead of indices.")] = False
    demo: Annotated[bool, typer.Option("--demo", help="Use the built-in demo host.")] = False
    json: Json = False


@command_of(PickOptions, flags=job_flags("gpus"))
def pick(options: PickOptions) -> None:
    """Print the index of the GPU with the most room, for scripts. Exit code 1 if no GPU has enough.

    Indices are nvidia-smi's: also set CUDA_DEVICE_ORDER=PCI_BUS_ID, or use --uuid. MIG instances have only uuids.
    Indices of AMD's GPUs are for ROCR_VISIBLE_DEVICES; a machine with both uses NVIDIA's. The GPU is not claimed:
    `vramtui run --when-fits` does that.

    Example: CUDA_VISIBLE_DEVICES=$(vramtui pick --needs 38GiB --uuid) python train.py
    """
    with exit_on_user_error():
        from vramtui.cli.estimate import changed_preset
        from vramtui.cli.run.placement import Need, candidates, job_name, need_of, runtime_uuid, usable

        settings, preset, needs, gpus = options.settings or [], options.preset, options.needs, options.gpus
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
        sample = sample_here(demo=options.demo)
        chosen = candidates(sample, need)[: need.count]
        if len(chosen) < need.count:
            fail(NO, no_room(usable(sample.gpus), len(chosen), need.count))
        if options.json:
            from vramtui.cli.common.console import print_json

            gpus_chosen = [
                {"index": gpu.index, "uuid": gpu.uuid, "verdict": fit.verdict, "needs": fit.needs, "spare": fit.spare}
                for gpu, fit in chosen
            ]
            print_json({"schema": 1, "gpus": gpus_chosen})
        else:
            named = runtime_uuid if options.uuid else job_name
            print(",".join(named(gpu, sample.gpus) for gpu, _ in chosen))
        for gpu, _ in chosen:
            jobs = [process for process in gpu.processes if "C" in process.type]
            for process in sorted(jobs, key=lambda one: -(one.used_memory or 0))[:MOST_SHOWN]:
                what = f"pid {process.pid} ({process.user or UNKNOWN}), {format_bytes(process.used_memory)}"
                text = f"vramtui: also on GPU {gpu.index}: {what}: {brief_command(process.command_or_name or '')}"
                sys.stderr.write(for_terminal(text) + "\n")


def sample_here(*, demo: bool = False) -> "Sample":
    """A sample of this machine."""
    from vramtui.cli.common.open_source import open_source
    from vramtui.sources.emulated import EMULATED

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
