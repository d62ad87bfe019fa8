"""Every key, taken from the bindings themselves: those of the panel that has the keys now come first."""

from collections.abc import Sequence

from textual.binding import Binding
from textual.content import Content

from vramtui.app.help.sections import SECTIONS, Section
from vramtui.app.ui.dialog import TextWindow

Piece = Content | str | tuple[str, str]
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


class Help(TextWindow):
    """The keys by where they work.

    Args:
        bindings: each with its keys as they are written.
        focused: what the ids of the bindings begin with that belong to the panel with the keys.
    """

    def __init__(self, bindings: Sequence[tuple[str, Binding]], focused: str = "") -> None:
        super().__init__("Help", "arrows scroll · Esc close")
        self._keys = bindings
        self._focused = focused

    def text(self) -> Content:
        """The focused panel, then the other keys, the mouse, and how the screen is read."""
        first = [section for section in SECTIONS if section.prefix == self._focused]
        rest = [section for section in SECTIONS if section.prefix != self._focused]
        pieces: list[Piece] = []
        for section in (*first, *rest):
            pieces += self._section(section)
        pieces.append(("Mouse and palette\n", "bold $primary"))
        pieces += [_line(key, what) for key, what in MOUSE]
        pieces.append(("\nHow to read the screen\n", "bold $primary"))
        pieces += [(f"{sentence}\n", "$muted") for sentence in READING]
        return Content.assemble(*pieces)

    def _section(self, section: Section) -> list[Piece]:
        group = [(key, binding) for key, binding in self._keys if (binding.id or "").startswith(section.prefix)]
        if not group:
            return []
        here = section.prefix == self._focused
        elsewhere = f"{section.title} (when focused; Tab switches)" if section.about else section.title
        title = f"{section.title} (focused)" if here else elsewhere
        about = [(f"{section.about}\n", "$muted")] if here and section.about else []
        return [
            (f"{title}\n", "bold $primary"),
            *about,
            *(_line(key, binding.tooltip or binding.description) for key, binding in group),
            "\n",
        ]


def _line(key: str, what: str) -> Content:
    return Content.assemble((f"  {key:<12}", "bold"), f" {what[:1].upper()}{what[1:]}\n")
