"""Which preset a process is a run of: chosen by hand, or by the preset's own `[match]`."""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from vramtui.core.preset import Match, PresetFile
from vramtui.core.readings import Gpu, Process, ProcessKey, Sample, process_key


def match_presets(
    sample: Sample, presets: Iterable[PresetFile], by_hand: Mapping[ProcessKey, str | None]
) -> dict[ProcessKey, PresetFile]:
    """The preset of every process that has one.

    A choice by hand wins (None there means: no preset, whatever `[match]` says). Among presets that match by
    themselves, the user's own come before bundled ones, then the order of their keys decides; so the answer does
    not depend on the order of processes or files.
    """
    known = {found.key: found for found in presets}
    automatic = sorted((f for f in known.values() if f.preset.match), key=lambda f: (f.bundled, f.key))
    matched: dict[ProcessKey, PresetFile] = {}
    for gpu in sample.gpus:
        for process in gpu.processes:
            key = process_key(sample.host.name, gpu, process)
            if key in by_hand:
                chosen = known.get(by_hand[key] or "")
            else:
                chosen = next((f for f in automatic if f.preset.match and matches(f.preset.match, gpu, process)), None)
            if chosen is not None:
                matched[key] = chosen
    return matched


def matches(match: Match, gpu: Gpu, process: Process) -> bool:
    """Whether every rule of `match` holds; a match without rules holds for nothing."""
    rules = (
        (match.command, process.command or process.name),
        (match.user, process.user),
        (match.gpu, gpu.name),
    )
    given = [(pattern, text) for pattern, text in rules if pattern is not None]
    return bool(given) and all(_found(pattern, text or "") for pattern, text in given)


# A command line is searched once for each pattern, not once a tick. 4096 characters bound a hostile one.
@lru_cache(maxsize=65536)
def _found(pattern: str, text: str) -> bool:
    return re.search(pattern, text[:4096]) is not None
