"""An estimate in chapters: what each part of the memory is, what moves it, and its arithmetic here."""

from functools import cache
from pathlib import Path

import msgspec

from vramtui.core.base import toml
from vramtui.core.base.units import format_bytes
from vramtui.core.estimate.estimate import CATEGORIES, PHASE_TITLES, TITLES, Estimate, Line, Part


class Words(msgspec.Struct, frozen=True):
    """A line of the Ledger in words: what it is, what makes it larger or smaller, and how sure its figure is."""

    what: str
    changed_by: str
    sure: str


class Chapter(msgspec.Struct, frozen=True):
    """One line of the Ledger with the parts that make it up; `at_peak` bytes are alive at the peak of allocated."""

    line: Line
    words: Words
    at_peak: int
    parts: tuple[Part, ...]

    @property
    def title(self) -> str:
        return TITLES[self.line]


ORDER: tuple[Line, ...] = (*CATEGORIES, "cached", "context", "other", "process")
TREE = (
    "process = CUDA context + reserved + other libraries: what nvidia-smi shows.",
    "reserved = allocated + cached: torch.cuda.memory_reserved().",
    "allocated = everything else: torch.cuda.memory_allocated().",
)
TRAINS: tuple[Line, ...] = ("gradients", "optimizer", "master_weights")


@cache
def words_of(*, trains: bool) -> dict[Line, Words]:
    """Each line of the ledger in the words of `explanation.toml`."""
    tables = toml.loads(Path(__file__).with_name("explanation.toml").read_text(encoding="utf-8"))
    own = {line: table.pop("inference", {}) for line, table in tables.items()}
    whole = {line: table if trains else table | own[line] for line, table in tables.items()}
    return msgspec.convert(whole, dict[Line, Words])


def chapters(estimate: Estimate) -> tuple[Chapter, ...]:
    """The lines that the estimate has parts for, in the Ledger's order."""
    phases = {estimate.peak_phase, *(moment.phase for moment in estimate.timeline)}
    trains = "backward" in phases or "step" in phases or any(part.line in TRAINS for part in estimate.parts)
    lines = []
    for line in ORDER:
        parts = tuple(part for part in estimate.parts if part.line == line)
        if not parts:
            continue
        words = words_of(trains=trains)[line]
        if estimate.method.startswith("rules:"):
            words = msgspec.structs.replace(words, sure="As the rule has it; its error is unknown.")
        lines.append(Chapter(line, words, sum(part.at_peak for part in parts), parts))
    return tuple(lines)


def peak_sentence(estimate: Estimate) -> str:
    """When allocated peaks, and the three totals at their own peaks."""
    step = "" if estimate.peak_step is None else f", step {estimate.peak_step + 1}"
    totals = [f"allocated {format_bytes(estimate.ledger.allocated, 2)}"] if estimate.ledger.allocated else []
    if estimate.reserved is not None:
        totals.append(f"reserved {format_bytes(estimate.reserved, 2)}")
    if estimate.process:
        totals.append(f"process {format_bytes(estimate.process, 2)}")
    return f"Peak: {PHASE_TITLES[estimate.peak_phase]}{step}; {', '.join(totals)}."


def arithmetic(part: Part) -> str:
    """A part in one line: its size, its formula, and how much of it is alive at the peak where that is less."""
    alive = ""
    if part.at_peak != part.bytes:
        alive = f" ({format_bytes(part.at_peak, 2) if part.at_peak else 'none of it'} at the peak)"
    return f"{part.name}: {format_bytes(part.bytes, 2)}{alive} = {part.formula}"
