"""The windows of help: every key, with those of the focused panel first, and all problems with their next steps."""

import time
from collections.abc import Iterable, Iterator, Sequence

from textual.binding import Binding
from textual.content import Content

from vramtui.app.help.sections import SECTIONS, Section
from vramtui.app.state.view import View
from vramtui.app.ui.dialog import TextWindow
from vramtui.app.ui.lines import fit, wrap
from vramtui.core.base.text import printable

Line = tuple[str, str] | str  # a key and what it does, or a heading
MOUSE = (
    ("click", "a row, a GPU, a column's heading, ‹ and › of a field, a key in the last line"),
    ("wheel", "scrolls the table and the GPUs"),
    ("ctrl+p", "the command palette: every action by its name"),
)
READING = (
    "Bars: █ used, ▒ kept by the driver, ░ free; ┊ is where the prediction is, ▶ when it is beyond the card.",
    "A category of memory has one colour everywhere. Sizes are in GiB (1024³ bytes), as nvidia-smi's MiB are.",
    "`vramtui help estimating` explains the estimate part by part; `vramtui help keys` lists the keys of all screens.",
)
# Watch's long list by task; the rest is under the screen's own title.
TASKS = {
    "watch.": (
        (
            "Rows",
            ("filter", "sort_before", "sort_next", "reverse", "group", "columns", "unfold", "fold", "let_go", "pause"),
        ),
        ("Estimate", ("presets", "edit", "edit_outside", "match", "explain", "undo", "apply")),
        ("Try a change", ("batch_less", "batch_more", "seq_less", "seq_more")),
        ("Save, copy, signal", ("snapshot", "snapshot_options", "copy_pid", "copy_command", "signal")),
    )
}
TWO_COLUMNS = 100  # width from which keys are in two columns
WIDEST = 120
KEY, GAP = 9, 3


class Problems(TextWindow):
    """The problems at the time it was opened, and recent notices.

    Args:
        view: the view with the problems.
        notices: time in seconds since the epoch and text, the newest last.
    """

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
            pieces.append((f"{printable(where)}\n", "bold $warning"))
            pieces.append(Content(f"  {printable(message)}\n"))
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
    """The keys by where they work.

    Args:
        bindings: each with its keys as they are written.
        focused: prefix of the ids of the focused panel's bindings.
    """

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
        pieces += _columns([*blocks, ["Mouse and palette", *MOUSE]], columns, width)
        for section in (section for section in first if section.about):
            add_text(f"{section.title}: how to read it", section.about)
            pieces.append(Content(""))
        add_text("How to read the screen", "\n".join(READING))
        return Content("\n").join(pieces)

    def _blocks(self, section: Section) -> Iterator[list[Line]]:
        """The keys of a section under its title, or under one for each task."""
        group = {
            (binding.id or "").removeprefix(section.prefix): (key, binding.tooltip or binding.description)
            for key, binding in self._keys
            if (binding.id or "").startswith(section.prefix)
        }
        tasks = TASKS.get(section.prefix, ())
        for title, names in tasks:
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
