"""The panel's estimate explained: what each part is, what moves it, and its arithmetic."""

from textual.content import Content

from vramtui.app.state.view import Panel
from vramtui.app.ui.dialog import TextWindow
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_bytes
from vramtui.core.estimate.explanation import TREE, Chapter, arithmetic, chapters, peak_sentence


class Explain(TextWindow):
    """The estimate of the moment in which it was opened."""

    def __init__(self, panel: Panel) -> None:
        super().__init__(f"How {printable(panel.preset.key)} is estimated", "arrows scroll · Esc close")
        self._panel = panel

    def text(self) -> Content:
        """Peak and totals, then chapter by chapter; without an estimate the reason why there is none."""
        estimate = self._panel.estimate
        if estimate is None:
            return Content(printable(self._panel.problem))
        pieces: list[Content | tuple[str, str]] = [(f"{peak_sentence(estimate)}\n", "bold")]
        pieces += [(f"  {sentence}\n", "$muted") for sentence in TREE]
        for chapter in chapters(estimate):
            pieces += _chapter(chapter)
        if estimate.assumptions:
            pieces.append(("\nAssumptions\n", "bold $primary"))
            pieces += [Content(f"  {printable(sentence)}\n") for sentence in estimate.assumptions]
        return Content.assemble(*pieces)


def _chapter(chapter: Chapter) -> list[Content | tuple[str, str]]:
    colour = chapter.line.replace("_", "-")
    pieces: list[Content | tuple[str, str]] = [
        (f"\n{chapter.title}", f"bold ${colour}"),
        (f"  {format_bytes(chapter.at_peak, 2)} at the peak\n", "bold"),
        Content(f"{chapter.words.what}\n"),
        Content.assemble(("What moves it: ", "$muted"), f"{chapter.words.changed_by}\n"),
        Content.assemble(("How sure: ", "$muted"), f"{chapter.words.sure}\n"),
    ]
    for part in chapter.parts:
        pieces.append(Content(f"• {printable(arithmetic(part))}\n"))
        pieces.append((f"  held {printable(part.lifetime)}; after {printable(part.source)}\n", "$muted"))
    return pieces
