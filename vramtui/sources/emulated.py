"""The simulated GPU of a `vramtui dry-run` of this user, where the machine has no driver of its own."""

import ctypes
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from vramtui.core.base.errors import SourceFailed
from vramtui.core.observation.readings import EMULATED, FastSource, Problem, Sample
from vramtui.dryrun.cuda.build import NVML
from vramtui.dryrun.cuda.environment import CARD, REPORT, cards_in_use
from vramtui.sources.nvml import open_here as open_nvml

NOT_THERE = Problem(where="simulated GPU", message="`vramtui dry-run` runs a job on it; the GPU itself does not exist.")


class EmulatedSource:
    """NVML's view of a simulated GPU. Every sample says so."""

    name = EMULATED

    def __init__(self, nvml: FastSource) -> None:
        self._nvml = nvml

    def read(self) -> Sample:
        """Return the card and the job's processes."""
        sample = self._nvml.read()
        return msgspec.structs.replace(sample, source=self.name, problems=(NOT_THERE, *sample.problems))

    def look(self, gpu_uuid: str) -> Mapping[int, int]:
        """Return bytes by pid on that card."""
        return self._nvml.look(gpu_uuid)

    def close(self) -> None:
        self._nvml.close()


def open_here(_: Problem | None = None) -> EmulatedSource:
    """Open the latest simulated GPU in use; raises SourceFailed if there is none, or its library cannot be loaded."""
    used = next(iter(cards_in_use()), None)
    if used is None:
        raise SourceFailed("")
    try:
        # For the library, which looks there at each list; jobs do not inherit it.
        os.putenv(REPORT, used.reports)
        os.environ[CARD] = used.card
        # pynvml asks for the library by this name, and gets the one that is loaded already.
        count = ctypes.c_uint()
        ctypes.CDLL(str(Path(used.libraries) / NVML), ctypes.RTLD_GLOBAL).nvmlDeviceGetCount_v2(ctypes.byref(count))
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        raise SourceFailed(f"The simulated GPU's library cannot be loaded: {error}.") from error
    finally:
        os.environ.pop(CARD, None)  # the library has read it; no child of this process runs there
    nvml = open_nvml()
    if not isinstance(nvml, FastSource):
        raise SourceFailed("The simulated GPU's library does not answer.")
    return EmulatedSource(nvml)
