"""Peaks of traces as they were once accepted, in a file beside the code, and what has grown since."""

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from vramtui.core.base.compatibility import NewerFormatError, check_format
from vramtui.core.base.errors import UserError
from vramtui.core.base.file_limits import BASELINE
from vramtui.core.base.text import printable, shortened
from vramtui.core.base.units import format_bytes, format_percent
from vramtui.dryrun.result import DryRun
from vramtui.models.readers.bounded import read_plain
from vramtui.presets.whole_files import write_whole

Total = Literal["allocated", "reserved", "process"]
TOTALS: tuple[Total, ...] = ("allocated", "reserved", "process")
MOST_LINES = 5
SCHEMA = 1


class BaselineEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One trace's peaks in bytes: three totals, and at the peak of allocated the parts and the lines that made them.

    Attributes:
        device: the card that was stood in for.
        torch: the version that ran; another one may allocate differently. In the file only where it is not the file's.
        parts: bytes by category.
        lines: bytes by function and operator, of the ten largest allocations; a comment moves none of these.
        at: the line of code of each of `lines` in this run; not in the file.
    """

    device: str
    torch: str = ""
    allocated: int
    reserved: int
    process: int
    parts: dict[str, int]
    lines: dict[str, int]
    at: dict[str, str] = {}

    def total(self, of: Total) -> int:
        """The bytes of one total."""
        return {"allocated": self.allocated, "reserved": self.reserved, "process": self.process}[of]


class BaselineFile(msgspec.Struct, frozen=True, kw_only=True):
    """The file: the version of torch that ran, and entries by the name of the test or of what was traced."""

    schema: int = SCHEMA
    torch: str = ""
    entries: dict[str, BaselineEntry]


class _Version(msgspec.Struct):
    schema: int = SCHEMA


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """One figure before and now, in bytes."""

    name: str
    before: int
    now: int

    def __str__(self) -> str:
        change = self.now - self.before
        sign = "+" if change >= 0 else "−"
        return f"{self.name}: {format_bytes(self.before, 2)} → {format_bytes(self.now, 2)} ({sign}{abs(change):,} B)"


def entry_of(result: DryRun, root: Path) -> BaselineEntry:
    """What a baseline keeps of a trace; files below `root` are named from there."""
    lines: dict[str, int] = {}
    at: dict[str, str] = {}
    for allocation in result.largest:
        place = _function_at(allocation.line, root) or allocation.module or "outside of the code"
        name = f"{place} ({allocation.operator})"
        lines[name] = lines.get(name, 0) + allocation.bytes
        at.setdefault(name, allocation.line.replace(f"{root}/", ""))
    return BaselineEntry(
        device=result.device,
        torch=result.torch.partition("+")[0],  # the build, +cpu or +cu130, allocates alike
        allocated=result.peak_allocated,
        reserved=result.peak_reserved,
        process=result.process,
        parts={part: size for part, size in sorted(result.peak_categories.items()) if size},
        lines=dict(sorted(lines.items(), key=lambda item: (-item[1], item[0]))),
        at=at,
    )


def _function_at(line: str, root: Path) -> str:
    """`train.py step` for `train.py:12`: the function that the line is in; the file alone where it is in none."""
    file, _, number = line.rpartition(":")
    if not number.isdigit():
        return line
    path = root / file
    named = file.replace(f"{root}/", "")
    names = [name for name, first, last in _functions(path) if first <= int(number) <= last]
    return f"{named} {names[-1]}" if names else named


@cache
def _functions(path: Path) -> tuple[tuple[str, int, int], ...]:
    """Functions of a file with their first and last lines, inner ones after outer ones; none if it is no Python."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ()
    return tuple(_within(tree, ""))


def _within(node: ast.AST, around: str) -> Iterator[tuple[str, int, int]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{around}{child.name}"
            if not isinstance(child, ast.ClassDef):
                yield name, child.lineno, child.end_lineno or child.lineno
            yield from _within(child, f"{name}.")
        else:
            yield from _within(child, around)


def read_baseline(path: Path) -> dict[str, BaselineEntry]:
    """The entries of a file; none where there is no file.

    Raises:
        UserError: it cannot be read, or is no baseline.
    """
    if not path.exists():
        return {}
    data = read_plain(path, BASELINE)
    try:
        check_format(msgspec.json.decode(data, type=_Version).schema, SCHEMA)
        whole = msgspec.json.decode(data, type=BaselineFile)
    except NewerFormatError as error:
        raise UserError(f"{path}: {error}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{path} is no baseline of vramtui: {shortened(str(error))}") from None
    if len(whole.entries) > (BASELINE.count or 0):
        raise UserError(f"{path} holds more than {BASELINE.count:,} entries, which no {BASELINE.what} does")
    return {
        name: entry if entry.torch else msgspec.structs.replace(entry, torch=whole.torch)
        for name, entry in whole.entries.items()
    }


def write_baseline(path: Path, entries: Mapping[str, BaselineEntry]) -> None:
    """The entries sorted by name, an entry's keys in their order and the version of torch once, so that a change is a
    small difference.

    Raises:
        UserError: it cannot be written; what was there stays.
    """
    (torch, _), *_ = Counter(entry.torch for entry in entries.values()).most_common(1) or [("", 0)]
    whole = BaselineFile(
        torch=torch,
        entries={
            name: msgspec.structs.replace(entry, torch="" if entry.torch == torch else entry.torch, at={})
            for name, entry in sorted(entries.items())
        },
    )
    write_whole(path.resolve(), msgspec.json.format(msgspec.json.encode(whole), indent=2) + b"\n", printable(str(path)))


def grown(before: BaselineEntry, now: BaselineEntry) -> tuple[Growth, ...]:
    """The parts that grew, most first, and then the lines."""
    lines = list(_grown(before.lines, now.lines))[:MOST_LINES]
    return (*_grown(before.parts, now.parts), *(_with_line(one, now.at.get(one.name, "")) for one in lines))


def _with_line(growth: Growth, at: str) -> Growth:
    """`train.py:12 step (aten.mm)` for `train.py step (aten.mm)`."""
    file = at.rpartition(":")[0]
    if not file or not growth.name.startswith(file):
        return growth
    return msgspec.structs.replace(growth, name=at + growth.name.removeprefix(file))


def _grown(before: Mapping[str, int], now: Mapping[str, int]) -> Iterator[Growth]:
    growths = [Growth(name=name, before=before.get(name, 0), now=size) for name, size in now.items()]
    yield from sorted((one for one in growths if one.now > one.before), key=lambda one: one.before - one.now)


def over_baseline(before: BaselineEntry, now: BaselineEntry, *, of: Total, tolerance: float) -> str | None:
    """Why `now` is more than the baseline lets it be, with what grew, a line each; None where it is not.

    Args:
        before: the baseline.
        now: the trace.
        of: which total is compared.
        tolerance: how much more is let pass, as a fraction.
    """
    old, new = before.total(of), now.total(of)
    if new <= old * (1 + tolerance):
        return None
    share = format_percent(new / old - 1) if old else "from nothing"
    more = [f"peak {Growth(name=of, before=old, now=new)}, {share}", *(f"  {one}" for one in grown(before, now))]
    if before.torch != now.torch:
        more.append(f"  the baseline was made with torch {before.torch}, this is {now.torch}")
    if before.device != now.device:
        more.append(f"  the baseline is of {before.device}, this is {now.device}")
    return "\n".join(more)


def markdown_table(rows: Mapping[str, tuple[BaselineEntry | None, BaselineEntry]]) -> str:
    """A table for a pull request: each trace before and now, and below it what grew."""
    lines = ["| | allocated | before | reserved | before |", "|---|---:|---:|---:|---:|"]
    details: list[str] = []
    for name, (before, now) in rows.items():
        olds = ("–", "–") if before is None else (format_bytes(before.allocated, 2), format_bytes(before.reserved, 2))
        news = (format_bytes(now.allocated, 2), format_bytes(now.reserved, 2))
        mark = "" if before is None or now.allocated <= before.allocated else " ▲"
        lines.append(f"| `{name}`{mark} | {news[0]} | {olds[0]} | {news[1]} | {olds[1]} |")
        details += [f"- `{name}`: {one}" for one in (grown(before, now) if before is not None else ())]
    return "\n".join([*lines, *(["", *details] if details else []), ""])


def tolerance_of(text: str) -> float:
    """`2%` or `0.02` as a fraction.

    Raises:
        UserError: it is neither.
    """
    try:
        value = float(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e6:
        raise UserError(f"{text!r} is no share to let pass: write it as 2% or 0.02")
    if value >= 1 and "%" not in text:
        raise UserError(f"{text} would let {value:.0%} more pass: write {text}% for that many hundredths")
    return value
