"""Everything that could not be done, each with the next step."""

from textual.content import Content

from vramtui.app.state.view import View
from vramtui.app.ui.dialog import TextWindow
from vramtui.core.base.text import printable


class Problems(TextWindow):
    """The problems of the moment in which it was opened."""

    def __init__(self, view: View) -> None:
        super().__init__("Alerts and problems" if view.alerts else "Problems")
        self._view = view

    def text(self) -> Content:
        """One paragraph each."""
        found = problems_of(self._view)
        if not found:
            return Content("No problems: every GPU answers and every preset could be read.")
        pieces: list[Content | tuple[str, str]] = []
        for where, message, hint in found:
            pieces.append((f"{printable(where)}\n", "bold $warning"))
            pieces.append(Content(f"  {printable(message)}\n"))
            if hint:
                pieces.append((f"  → {printable(hint)}\n", "$muted"))
        return Content.assemble(*pieces)


def problems_of(view: View) -> list[tuple[str, str, str]]:
    """Where, what and the next step of every problem."""
    found = [(f"GPU {alert.gpu_index}", alert.sentence, "") for alert in view.alerts]
    found += [("source", view.failure, "")] if view.failure else []
    found += [("history", view.history_error, "")] if view.history_error else []
    if view.sample is not None:
        found += [
            (
                f"GPU {gpu.index}",
                gpu.reason or gpu.state,
                "the other GPUs continue; this one is asked again at every sample",
            )
            for gpu in view.sample.gpus
            if gpu.state != "ok"
        ]
        found += [(problem.where, problem.message, problem.hint) for problem in view.sample.problems]
    return found + [("preset", note, "vramtui presets check shows more") for note in view.notes]
