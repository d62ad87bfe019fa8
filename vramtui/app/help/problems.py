"""Everything that could not be done, each with the next step."""

import time
from collections.abc import Iterable

from textual.content import Content

from vramtui.app.state.view import View
from vramtui.app.ui.dialog import TextWindow
from vramtui.core.base.text import printable


class Problems(TextWindow):
    """The problems of the moment in which it was opened, and what was said lately.

    Args:
        view: what has the problems.
        said: when what was said, the newest last; seconds since the epoch.
    """

    def __init__(self, view: View, said: Iterable[tuple[float, str]] = ()) -> None:
        super().__init__("Alerts and problems" if view.alerts else "Problems")
        self._view = view
        self._said = tuple(said)

    def text(self) -> Content:
        """One paragraph each; those that are the same but for where they are, in one."""
        pieces: list[Content | tuple[str, str]] = []
        found = folded(problems_of(self._view))
        if not found:
            pieces.append(Content("No problems: every GPU answers and every preset could be read.\n"))
        for where, message, hint in found:
            pieces.append((f"{printable(where)}\n", "bold $warning"))
            pieces.append(Content(f"  {printable(message)}\n"))
            if hint:
                pieces.append((f"  → {printable(hint)}\n", "$muted"))
        if self._said:
            pieces.append(("\nSaid lately\n", "bold $primary"))
        for at, words in reversed(self._said):
            clock = time.strftime("%H:%M:%S", time.localtime(at))
            pieces += [(f"  {clock} ", "$muted"), Content(f"{printable(words)}\n")]
        return Content.assemble(*pieces)


def folded(problems: Iterable[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Problems of one message and next step as one, with every place: `GPU 0, 1, 2`."""
    places: dict[tuple[str, str], list[str]] = {}
    for where, message, hint in problems:
        places.setdefault((message, hint), []).append(where)
    return [(_joined(where), message, hint) for (message, hint), where in places.items()]


def _joined(places: list[str]) -> str:
    first, *others = dict.fromkeys(places)
    kind = first.rpartition(" ")[0]
    return ", ".join([first, *(other.removeprefix(f"{kind} ") if kind else other for other in others)])


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
