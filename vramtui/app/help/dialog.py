"""The windows of help: every key, with those of the focused panel first, and all problems with their next steps."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.keys import format_key

from vramtui.app import keys as key_list
from vramtui.app.fleet.screen import FleetRows, JobRows
from vramtui.app.history.screen import RunRows, RunWindow
from vramtui.app.plan.screen import Heatmap, PlanWords
from vramtui.app.state.view import View
from vramtui.app.timeline.screen import PhaseBars
from vramtui.app.ui.chooser import TextWindow
from vramtui.app.ui.lines import fit, wrap
from vramtui.app.watch.estimate_panel import EstimatePanel
from vramtui.app.watch.process_table import Rows
from vramtui.core.base import toml
from vramtui.core.base.errors import UserError, nearest
from vramtui.core.base.text import printable


class Section(NamedTuple):
    """A panel or a screen: the prefix of its bindings' ids, its title, its bindings, and how to read it."""

    prefix: str
    title: str
    bindings: Sequence[BindingType]
    about: str = ""


ABOUT = toml.loads(Path(__file__).with_name("about.toml").read_text(encoding="utf-8"))
SECTIONS = (
    Section("table.", "Process table", Rows.BINDINGS, ABOUT["table"]),
    Section("estimate.", "Estimate panel", EstimatePanel.BINDINGS, ABOUT["estimate"]),
    Section("phases.", "Phases", PhaseBars.BINDINGS, ABOUT["phases"]),
    Section("watch.", "Watch", key_list.WATCH_BINDINGS),
    Section("map.", "Map of what fits", Heatmap.BINDINGS, ABOUT["map"]),
    Section("changes.", "Changes that free memory", PlanWords.BINDINGS, ABOUT["changes"]),
    Section("plan.", "Plan", key_list.PLAN_BINDINGS),
    Section("timeline.", "Timeline", key_list.TIMELINE_BINDINGS),
    Section("history.", "History", key_list.HISTORY_BINDINGS, ABOUT["history"]),
    Section("runs.", "List of runs", RunRows.BINDINGS, ABOUT["runs"]),
    Section("run.", "One run", RunWindow.BINDINGS),
    Section("fleet.", "Fleet, with several hosts", key_list.FLEET_BINDINGS, ABOUT["fleet"]),
    Section("fleet_rows.", "List of hosts", FleetRows.BINDINGS),
    Section("fleet_jobs.", "List of jobs", JobRows.BINDINGS),
    Section("replay.", "While a recording is played", key_list.REPLAY_BINDINGS),
    Section("form.", "Preset editor: form", key_list.FORM_BINDINGS, ABOUT["form"]),
    Section("editor.", "Preset editor", key_list.EDITOR_BINDINGS),
    Section("app.", "Everywhere", key_list.APP_BINDINGS),
)


def bindings_of(section: Section) -> Iterator[Binding]:
    return (binding for binding in section.bindings if isinstance(binding, Binding) and binding.id)


def every_key() -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
    """Each section's title, and for each of its bindings the usual key, its name in the settings, and what it does."""
    for section in SECTIONS:
        lines: dict[str, tuple[str, str, str]] = {}
        for binding in bindings_of(section):
            keys = " ".join(binding.key_display or format_key(key) for key in binding.key.split(","))
            lines[binding.id or ""] = (keys, binding.id or "", binding.tooltip or binding.description)
        if lines:
            yield section.title, list(lines.values())


def check_keys(chosen: Mapping[str, str]) -> None:
    """Check that every name in the settings' `[keys]` is the id of a binding; UserError names the nearest."""
    known = [binding.id or "" for section in SECTIONS for binding in bindings_of(section)]
    for name, keys in chosen.items():
        if name not in known:
            raise UserError(f"keys.{name} is not the name of a key{nearest(name, known)}; `vramtui help keys` has them")
        if not all(key.strip() for key in keys.split(",")):
            raise UserError(f"keys.{name} is {keys!r}: keys are written as `s`, `ctrl+s` or `s,ctrl+s`")


Line = tuple[str, str] | str  # a key and what it does, or a heading
TWO_COLUMNS = 100  # width from which keys are in two columns
WIDEST = 120
KEY, GAP = 9, 3


class Problems(TextWindow):
    """The problems of a view, and recent notices: time in seconds since the epoch and text, the newest last."""

    def __init__(self, view: View, notices: Iterable[tuple[float, str]] = ()) -> None:
        super().__init__("Alerts and problems" if view.alerts else "Problems")
        self._view, self._notices = view, tuple(notices)

    def text(self) -> Content:
        """A paragraph for each problem; the same problem in several places is one."""
        pieces: list[Content | tuple[str, str]] = []
        problems = folded(problems_of(self._view))
        if not problems:
            pieces.append(Content("No problems: every GPU answers and every preset could be read.\n"))
        for where, message, hint in problems:
            pieces += [(f"{printable(where)}\n", "bold $warning"), Content(f"  {printable(message)}\n")]
            if hint:
                pieces.append((f"  → {printable(hint)}\n", "$muted"))
        if self._notices:
            pieces.append(("\nRecent\n", "bold $primary"))
        for at, words in reversed(self._notices):
            clock = time.strftime("%H:%M:%S", time.localtime(at))
            pieces += [(f"  {clock} ", "$muted"), Content(f"{printable(words)}\n")]
        return Content.assemble(*pieces)


def folded(problems: Iterable[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Problems with the same message and next step as one, with every place: `GPU 0, 1, 2`."""
    places: dict[tuple[str, str], list[str]] = {}
    for where, message, hint in problems:
        places.setdefault((message, hint), []).append(where)
    problems = []
    for (message, hint), wordings in places.items():
        first, *others = dict.fromkeys(wordings)
        kind = first.rpartition(" ")[0]
        named = [first, *(other.removeprefix(f"{kind} ") if kind else other for other in others)]
        problems.append((", ".join(named), message, hint))
    return problems


def problems_of(view: View) -> list[tuple[str, str, str]]:
    """Return place, message and next step of every problem."""
    problems = [(f"GPU {alert.gpu_index}", alert.sentence, "") for alert in view.alerts]
    problems += [("source", view.failure, "")] if view.failure else []
    problems += [("history", view.history_error, "")] if view.history_error else []
    if view.sample is not None:
        problems += [
            (
                f"GPU {gpu.index}",
                gpu.reason or gpu.state,
                "the other GPUs continue; this one is asked again at every sample",
            )
            for gpu in view.sample.gpus
            if gpu.state != "ok"
        ]
        problems += [(problem.where, problem.message, problem.hint) for problem in view.sample.problems]
    return problems + [("preset", note, "vramtui presets check shows more") for note in view.notes]


class Help(TextWindow):
    """The keys by where they work, first those whose ids begin with `focused`; bindings come with their keys."""

    def __init__(self, bindings: Sequence[tuple[str, Binding]], focused: str = "") -> None:
        super().__init__("Help", "arrows scroll · Esc close")
        self._keys, self._focused = bindings, focused

    def text(self) -> Content:
        """The keys of the focused panel, then the others and the mouse; then how to read the panel and the screen."""
        width = self.room(WIDEST)
        columns = 2 if self.app.size.width >= TWO_COLUMNS else 1
        first = [section for section in SECTIONS if section.prefix == self._focused]
        # The screen's own keys before those of panels that have no focus.
        rest = sorted((one for one in SECTIONS if one.prefix != self._focused), key=lambda one: bool(one.about))
        pieces: list[Content] = []

        def add_text(title: str, text: str) -> None:
            pieces.append(Content.styled(title, "bold $primary"))
            lines = (line for sentence in text.split("\n") for line in wrap(sentence, width))
            pieces.extend(Content.styled(line, "$muted") for line in lines)

        for section in first:
            pieces += _columns(list(self._blocks(section)), columns, width)
        blocks = [block for section in rest for block in self._blocks(section)]
        pieces += _columns([*blocks, ["Mouse and palette", *ABOUT["mouse"].items()]], columns, width)
        for section in (section for section in first if section.about):
            add_text(f"{section.title}: how to read it", section.about)
            pieces.append(Content(""))
        add_text("How to read the screen", ABOUT["reading"].strip())
        return Content("\n").join(pieces)

    def _blocks(self, section: Section) -> Iterator[list[Line]]:
        """The keys of a section under its title, or under one for each task."""
        group = {
            (binding.id or "").removeprefix(section.prefix): (key, binding.tooltip or binding.description)
            for key, binding in self._keys
            if (binding.id or "").startswith(section.prefix)
        }
        for title, names in ABOUT["tasks"].items() if section.prefix == "watch." else ():
            if any(name in group for name in names):
                yield [title, *(group.pop(name) for name in names if name in group)]
        if group:
            elsewhere = f"{section.title} (when focused; Tab switches)" if section.about else section.title
            title = f"{section.title} (focused)" if section.prefix == self._focused else elsewhere
            yield [title, *group.values()]


def _columns(blocks: list[list[Line]], columns: int, width: int) -> list[Content]:
    """Blocks one below the other, in columns of about the same height; only a single block is split."""
    each = width if columns == 1 else (width - GAP) // 2

    def wrapped(line: Line) -> Iterator[Line]:
        """A key and what it does, in as many lines as necessary."""
        if isinstance(line, str):
            yield line
            return
        key, what = line
        for number, part in enumerate(wrap(what[:1].upper() + what[1:], each - KEY - 3)):
            yield (key if number == 0 else "", part)

    blocks = [[part for line in block for part in wrapped(line)] for block in blocks]
    lines: list[Line] = [line for block in blocks for line in (*block, "")]
    if columns == 1 or not lines:
        return [_line(line, width) for line in lines]
    half = (len(lines) + 1) // 2
    if len(blocks) == 1:
        title, *keys = blocks[0]
        at = (len(keys) + 1) // 2
        left, right = [title, *keys[:at], ""], ["", *keys[at:], ""]
    else:
        left = []
        for block in blocks:
            if len(left) + len(block) // 2 > half:
                break
            left += [*block, ""]
        right = lines[len(left) :]
    rows = max(len(left), len(right))
    left, right = ([*side, *[""] * (rows - len(side))] for side in (left, right))
    return [
        Content.assemble(_line(one, each), " " * GAP, _line(other, each))
        for one, other in zip(left, right, strict=True)
    ]


def _line(line: Line, width: int) -> Content:
    if isinstance(line, str):
        return Content.styled(fit(line, width), "bold $primary")
    key, what = line
    return Content.assemble((f"  {key:<{KEY}}", "bold"), fit(f" {what}", width - KEY - 2))
