"""Every key, taken from the bindings themselves."""

from collections.abc import Sequence

from textual.binding import Binding
from textual.content import Content

from vramtui.app.screens.windows import TextWindow

GROUPS = (
    ("watch.", "Watch"),
    ("timeline.", "Timeline"),
    ("phases.", "Phases"),
    ("table.", "Process table"),
    ("estimate.", "Estimate panel, when it has the focus (Tab)"),
    ("app.", "Everywhere"),
)
MOUSE = (
    ("click", "a row, a GPU, a column's heading, ‹ and › of a field, a key in the last line"),
    ("wheel", "scrolls the table and the GPUs"),
    ("ctrl+p", "the command palette: every action by its name"),
)
READING = (
    "Bars: █ used, ▒ kept by the driver, ░ free; ┊ is where the prediction takes it, ▶ when that is beyond the card.",
    "NOW is what the driver says a process holds, PEAK the most it was seen to hold, Δ is PEAK against PREDICTED.",
    "allocated and reserved are PyTorch's own figures; process is what nvidia-smi shows.",
)


class Help(TextWindow):
    """The keys by where they work.

    Args:
        bindings: each with its keys as they are written.
    """

    def __init__(self, bindings: Sequence[tuple[str, Binding]]) -> None:
        super().__init__("Help", "arrows scroll · Esc closes")
        self._keys = bindings

    def text(self) -> Content:
        """Keys, mouse, and how the screen is read."""
        pieces: list[Content | tuple[str, str]] = []
        for prefix, title in GROUPS:
            group = [(key, binding) for key, binding in self._keys if (binding.id or "").startswith(prefix)]
            if group:
                pieces.append((f"{title}\n", "bold $primary"))
                pieces += [_line(key, binding.tooltip or binding.description) for key, binding in group]
        pieces.append(("Mouse and palette\n", "bold $primary"))
        pieces += [_line(key, what) for key, what in MOUSE]
        pieces.append(("How to read it\n", "bold $primary"))
        pieces += [Content(f"  {sentence}\n") for sentence in READING]
        return Content.assemble(*pieces)


def _line(key: str, what: str) -> Content:
    return Content.assemble((f"  {key:<12}", "bold"), f" {what[:1].upper()}{what[1:]}\n")
