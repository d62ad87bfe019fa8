"""`--gpus N`: a job that is shared over so many cards."""

import sys

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.estimate.devices import Device
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import Parallel


def shared_over(found: PresetFile, device: Device, gpus: int) -> PresetFile:
    """The preset on so many GPUs: with other data-parallel ranks where it is spread already, else by FSDP or tensor
    parallel, whichever needs less of each. What is done is said on standard error.

    Raises:
        UserError: it cannot be spread so.
    """
    parallel, name = found.preset.parallel or Parallel(), printable(found.key)
    if parallel.ranks == gpus:
        return found
    if parallel.ranks == 1:
        return _spread(found, device, gpus)
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
    return msgspec.structs.replace(found, preset=msgspec.structs.replace(found.preset, parallel=changed, measured=None))


def _spread(found: PresetFile, device: Device, gpus: int) -> PresetFile:
    from vramtui.estimators.methods import DEFAULT
    from vramtui.estimators.planner.shared_jobs import least_shared

    name = printable(found.key)
    least = least_shared(DEFAULT, found.preset.workload, device, gpus)
    if least is None:
        raise UserError(f"{name} cannot be shared over {gpus} GPUs, by neither FSDP nor tensor parallel")
    sys.stderr.write(f"vramtui: {name} is for one GPU; calculated with {least.words} ({least.settings})\n")
    preset = msgspec.structs.replace(found.preset, parallel=least.workload.parallel, measured=None)
    return msgspec.structs.replace(found, preset=preset)
