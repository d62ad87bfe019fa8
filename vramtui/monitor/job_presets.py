"""Which preset a job runs: the one that `vramtui run` was given or has traced, of which the job tells, or the one that
its command line matches, with the values of that line.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from vramtui.core.base.errors import UserError
from vramtui.core.observation.matcher import Matcher
from vramtui.core.observation.readings import ProcessKey, Sample
from vramtui.core.schema.preset import PresetFile
from vramtui.dryrun.traces import SUFFIX, Traces, read_job_trace

if TYPE_CHECKING:
    from vramtui.core.observation.probe_messages import ObservedJob
    from vramtui.presets import PresetLibrary

MOST_AT_ONCE = 4  # that are looked for at one sample: a name that nobody knows takes up to 0.1 s
MOST_FOUND = 1024  # presets that jobs tell of; a feed or another host could name another each second


def from_library(name: str) -> PresetFile:
    """The preset called so, or in that file.

    Raises:
        UserError: there is none, or it cannot be read.
    """
    from vramtui.presets import PresetLibrary  # noqa: PLC0415 - not needed for the first paint
    from vramtui.presets.named_presets import preset_named  # noqa: PLC0415 - not needed for the first paint

    return preset_named(name, PresetLibrary())


def matcher_of(presets: Iterable[PresetFile]) -> Matcher:
    """One that knows presets that are read already."""
    return Matcher(presets, _of_command)


def matcher_of_library(library: "PresetLibrary") -> Matcher:
    """One that reads a preset when a process is found that runs it."""
    return Matcher.of_candidates(library.candidates(), library.find, _of_command)


def _of_command(preset_file: PresetFile, command: str) -> PresetFile | None:
    """`preset_file` with the values that a job's command line says, which a Matcher puts in; None for a server that the
    preset does not speak of.
    """
    from vramtui.presets.importers.command_values import is_served, with_command  # noqa: PLC0415 - not for first paint

    return None if is_served(preset_file, command) else with_command(preset_file, command)


class JobPresets:
    """Finds them once each; one that cannot be found is as if the job had told of none.

    Args:
        traces: takes the traces that runs hand on.
        find: finds a preset by its name or path; raises UserError.

    Attributes:
        presets: those that jobs told of, by what they told.
    """

    __slots__ = ("_find", "_left", "_traces", "presets")

    def __init__(self, traces: Traces, find: Callable[[str], PresetFile] = from_library) -> None:
        self._traces = traces
        self._find = find
        self.presets: dict[str, PresetFile | None] = {}
        self._left = 0

    def of(self, sample: Sample, jobs: "Iterable[ObservedJob]") -> dict[ProcessKey, PresetFile]:
        """The preset of each process of `sample` whose job told of one, as far as they were looked for by now."""
        self._left = MOST_AT_ONCE
        names = {
            job.pid: job.hello.preset for job in jobs if job.hello is not None and job.hello.preset and not job.gone
        }
        if not names:
            return {}
        matched = {}
        for gpu in sample.gpus:
            for process in gpu.processes:
                preset_file = self._preset(names[process.pid]) if process.pid in names else None
                if preset_file is not None:
                    matched[ProcessKey(sample.host.name, gpu.uuid, process.pid, process.started_at)] = preset_file
        return matched

    def _preset(self, name: str) -> PresetFile | None:
        if name not in self.presets:
            # Path.exists raises where a folder is another user's, and of a name that is too long: a feed or another
            # host may tell any.
            if name.endswith(SUFFIX) and not os.path.exists(name):  # noqa: PTH110 - as above
                return None  # the job is still being traced
            if not self._left or len(self.presets) >= MOST_FOUND:
                return None
            self._left -= 1
            try:
                is_trace = name.endswith(SUFFIX)
                self.presets[name] = self._traces.take(read_job_trace(Path(name))) if is_trace else self._find(name)
            except (UserError, OSError):
                self.presets[name] = None
        return self.presets[name]
