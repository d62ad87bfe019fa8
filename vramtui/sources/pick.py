"""Which source sees this machine's GPUs."""

import contextlib
from importlib import import_module
from shutil import which
from typing import NamedTuple, Protocol

from vramtui.core.base.errors import SourceFailed
from vramtui.core.observation.readings import Problem
from vramtui.core.observation.source import Source
from vramtui.sources.merged import MergedSource


class Opening(Protocol):
    """The function `open_here` of a source's module."""

    def __call__(self, because: Problem | None = None) -> Source:
        """The source, asked once already where that is quick; `because` says what was asked before it and why that is
        not used, and is told in every sample.

        Raises:
            SourceFailed: it cannot see this machine's GPUs; says why, and what to do about it.
        """
        ...


class SourceCandidate(NamedTuple):
    """One way to this machine's GPUs.

    Attributes:
        title: how a sentence calls it.
        module: its module in `vramtui.sources`, loaded when it is asked.
        program: what it runs. One that is there and fails knows more than that another's library is missing.
        beside: it shows cards that no other does, which stand beside those of whichever answered before it: its
            module has a function `open_beside` for that.
    """

    title: str
    module: str
    program: str = ""
    beside: bool = False


# In the order in which they are asked.
CANDIDATES = (
    SourceCandidate("NVML", "nvml.load"),
    SourceCandidate("nvidia-smi", "nvidia_smi.source", program="nvidia-smi"),
    SourceCandidate("amdgpu", "amdgpu.source", beside=True),
    SourceCandidate("an emulated card", "emulated"),
)


def pick_source(ways: tuple[SourceCandidate, ...] = CANDIDATES) -> Source:
    """The first source that can be opened, with those of other vendors' cards beside it; one that is not the first
    says in every sample why.

    Raises:
        SourceFailed: none answers; says why each does not, and what to do.
    """
    failures: list[SourceFailed] = []
    for at, way in enumerate(ways):
        opening: Opening = import_module(f"vramtui.sources.{way.module}").open_here
        try:
            source = opening(_because(ways[:at], failures, way))
        except SourceFailed as error:
            failures.append(error)
            continue
        return _with_others(source, ways[at + 1 :])
    there = [failure for way, failure in zip(ways, failures, strict=True) if way.program and which(way.program)]
    hint = next((failure.hint for failure in (*reversed(there), *failures) if failure.hint), "")
    raise SourceFailed(" ".join(failure.message for failure in failures if failure.message), hint) from failures[-1]


def _with_others(source: Source, later: tuple[SourceCandidate, ...]) -> Source:
    """The source, merged with every later one whose cards it does not show."""
    for way in later:
        if way.beside:
            with contextlib.suppress(SourceFailed):
                source = MergedSource(source, import_module(f"vramtui.sources.{way.module}").open_beside())
    return source


def _because(asked: tuple[SourceCandidate, ...], failures: list[SourceFailed], way: SourceCandidate) -> Problem | None:
    """Why `way` is used and none of those that were asked before it."""
    if not failures:
        return None
    said = " ".join(error.message for error in failures)
    return Problem(where=asked[0].title, message=f"{said} {way.title} is used instead.", hint=failures[0].hint)
