"""`--gpus N`: a job that is shared over so many cards."""

import sys

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.estimate.devices import Device
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import Parallel


def shared_over(preset_file: PresetFile, device: Device, gpus: int) -> PresetFile:
    """The preset on so many GPUs: with other data-parallel ranks where it is spread already, else by FSDP or tensor
    parallel (`shared_job`). What is done is said on standard error.

    Raises:
        UserError: it cannot be spread so.
    """
    parallel, name = preset_file.preset.parallel or Parallel(), printable(preset_file.key)
    if parallel.ranks == gpus:
        return preset_file
    if parallel.ranks == 1:
        return _spread(preset_file, device, gpus)
    others = parallel.ranks // parallel.data
    if gpus % others:
        raise UserError(
            f"{name} shares its job over {parallel.ranks} GPUs, in groups of {others} (tensor, pipeline, context),"
            f" which {gpus} GPUs are no multiple of; change parallel with --set"
        )
    data = gpus // others
    sys.stderr.write(
        f"vramtui: {name} is for {parallel.ranks} GPUs; calculated for {gpus} (--set parallel.data={data})\n"
    )
    changed = msgspec.structs.replace(parallel, data=data, expert=min(parallel.expert, data))
    return msgspec.structs.replace(
        preset_file, preset=msgspec.structs.replace(preset_file.preset, parallel=changed, measured=None)
    )


def _spread(preset_file: PresetFile, device: Device, gpus: int) -> PresetFile:
    from vramtui.estimators.methods import DEFAULT
    from vramtui.estimators.planner.card_table import shared_job

    name = printable(preset_file.key)
    shared = shared_job(DEFAULT, preset_file.preset.workload, device, gpus)
    if shared is None:
        raise UserError(f"{name} cannot be shared over {gpus} GPUs, by neither FSDP nor tensor parallel")
    sys.stderr.write(f"vramtui: {name} is for one GPU; calculated with {shared.words} ({shared.settings})\n")
    preset = msgspec.structs.replace(preset_file.preset, parallel=shared.workload.parallel, measured=None)
    return msgspec.structs.replace(preset_file, preset=preset)
