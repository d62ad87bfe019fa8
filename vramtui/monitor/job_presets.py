"""The preset of a job: the one that the job reports, as `vramtui run` has it or traced it, or the one that its command
line matches, with the values of that line.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.observation.matcher import Matcher
from vramtui.core.observation.readings import ProcessKey, Sample
from vramtui.core.schema.preset import PresetFile

if TYPE_CHECKING:
    from vramtui.core.observation.probe_messages import ObservedJob
    from vramtui.dryrun.traces import Traces
    from vramtui.presets import PresetLibrary

TRACE_SUFFIX = ".trace"  # of the file that a run hands on; it is there once the dry run has ended
MOST_AT_ONCE = 4  # presets to look for at one sample: an unknown name takes up to 0.1 s
MOST_FOUND = 1024  # a feed or another host could report another one each second


def from_library(name: str) -> PresetFile:
    from vramtui.presets import PresetLibrary  # noqa: PLC0415 - not needed for the first paint
    from vramtui.presets.named_presets import preset_named  # noqa: PLC0415 - not needed for the first paint

    return preset_named(name, PresetLibrary())


def matcher_of(presets: Iterable[PresetFile]) -> Matcher:
    return Matcher(presets, _of_command)


def matcher_of_library(library: "PresetLibrary") -> Matcher:
    """Return a matcher that reads a preset when it finds a process that runs it."""
    return Matcher.of_candidates(library.candidates(), library.find, _of_command)


def _of_command(preset_file: PresetFile, command: str, is_chosen: bool) -> PresetFile | None:
    """Return `preset_file` with the values of a job's command line; None for a server it does not cover. A person's
    choice keeps what that line does not state, as a person's own preset does.
    """
    from vramtui.presets.importers.process_offers import is_served, with_command  # noqa: PLC0415 - not for first paint

    if is_chosen:
        adapted = with_command(msgspec.structs.replace(preset_file, bundled=False), command)
        return msgspec.structs.replace(adapted, bundled=preset_file.bundled)
    return None if is_served(preset_file, command) else with_command(preset_file, command)


class JobPresets:
    """Finds each reported preset once; a job whose preset cannot be found counts as one that reported none.

    Attributes:
        presets: by the reported name or path.
    """

    __slots__ = ("_find", "_traces", "presets")

    def __init__(self, traces: "Callable[[], Traces]", find: Callable[[str], PresetFile] = from_library) -> None:
        self._traces, self._find = traces, find
        self.presets: dict[str, PresetFile | None] = {}

    def of(self, sample: Sample, jobs: "Iterable[ObservedJob]") -> dict[ProcessKey, PresetFile]:
        """Return the preset of each process of `sample` whose job reported one, as far as it is known by now."""
        names = {
            job.pid: job.hello.preset for job in jobs if job.hello is not None and job.hello.preset and not job.gone
        }
        if not names:
            return {}
        left, matched = MOST_AT_ONCE, {}
        for gpu in sample.gpus:
            for process in gpu.processes:
                name = names.get(process.pid)
                if name is None:
                    continue
                if name not in self.presets:
                    # Path.exists raises in another user's folder, and for a long name: a feed may report any.
                    is_trace = name.endswith(TRACE_SUFFIX)
                    if is_trace and not os.path.exists(name):  # noqa: PTH110 - as above
                        continue  # the job is still being traced
                    if not left or len(self.presets) >= MOST_FOUND:
                        continue
                    left -= 1
                    try:
                        self.presets[name] = self._traces().read(Path(name)) if is_trace else self._find(name)
                    except (UserError, OSError):
                        self.presets[name] = None
                preset_file = self.presets[name]
                if preset_file is not None:
                    matched[ProcessKey(sample.host.name, gpu.uuid, process.pid, process.started_at)] = preset_file
        return matched
