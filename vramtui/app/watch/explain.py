"""The panel's estimate explained: each part, what changes it, its arithmetic, and published rules."""

from textual.content import Content

from vramtui.app.state.view import Panel
from vramtui.app.ui.dialog import TextWindow
from vramtui.app.ui.parts import same_parts
from vramtui.app.watch.estimate_panel import SETTLE, guess_sentences, read_from
from vramtui.core.base.text import printable
from vramtui.core.base.units import GIB, format_bytes, format_column, format_percent
from vramtui.core.estimate.assumptions import settings_of
from vramtui.core.estimate.explanation import TREE, arithmetic, chapters, peak_sentence

NAME = 30


class Explain(TextWindow):
    """The estimate of the moment in which it was opened."""

    def __init__(self, panel: Panel) -> None:
        super().__init__(f"How {printable(panel.preset.key)} is estimated", "arrows scroll · Esc close")
        self._panel = panel

    def text(self) -> Content:
        """Return peak and totals, chapter by chapter, and the published rules; without an estimate the reason."""
        panel, estimate = self._panel, self._panel.estimate
        if estimate is None:
            lines = [printable(panel.problem)]
            if panel.guess is not None:
                assumed = printable(", ".join(settings_of(panel.preset)))
                lines = [
                    *guess_sentences(panel, panel.guess),
                    "",
                    "No prediction: what is assumed could move the total by more than a fifth, or the job holds more.",
                    f"With {assumed} it would be {format_bytes(panel.guess.estimate)}.",
                    "",
                    SETTLE,
                    read_from(panel),
                ]
            return Content("\n".join(lines))
        pieces: list[Content | tuple[str, str]] = [(f"{peak_sentence(estimate)}\n", "bold")]
        pieces += [(f"  {sentence}\n", "$muted") for sentence in TREE]
        for chapter in chapters(estimate):
            pieces += [
                (f"\n{chapter.title}", f"bold ${chapter.line.replace('_', '-')}"),
                (f"  {format_bytes(chapter.at_peak, 2)} at the peak\n", "bold"),
                Content(f"{chapter.words.what}\n"),
                Content.assemble(("What moves it: ", "$muted"), f"{chapter.words.changed_by}\n"),
                Content.assemble(("How sure: ", "$muted"), f"{chapter.words.sure}\n"),
            ]
            for part in chapter.parts:
                pieces.append(Content(f"• {printable(arithmetic(part))}\n"))
                pieces.append((f"  held {printable(part.lifetime)}; after {printable(part.source)}\n", "$muted"))
        if estimate.assumptions:
            pieces.append(("\nAssumptions\n", "bold $primary"))
            pieces += [Content(f"  {printable(sentence)}\n") for sentence in estimate.assumptions]
        if panel.rules:
            pieces += [
                ("\nRules of thumb\n", "bold $primary"),
                ("  Published rules for the same job, beside this estimate of the parts that each counts.\n", "$muted"),
                (f"  {'in GiB':<{NAME}}{'rule':>9}{'estimate':>10}{'Δ':>10}\n", "$muted"),
            ]
        for rule in panel.rules:
            same, name = same_parts(rule, estimate), printable(rule.method.removeprefix("rules:")).replace("-", " ")
            apart = format_percent(rule.process / same - 1) if same else ""
            figures = f"{format_column(rule.process, GIB):>9}{format_column(same, GIB):>10}{apart:>10}"
            pieces.append(Content(f"  {name[: NAME - 1]:<{NAME}}{figures}\n"))
        return Content.assemble(*pieces)
