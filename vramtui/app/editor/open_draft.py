"""The draft that the editor has open. Each change is estimated at once and shown everywhere."""

from collections.abc import Callable
from typing import Literal, Protocol

from vramtui.app.editor.editor_view import DraftEstimator, EditorView
from vramtui.core.runs.run import Run
from vramtui.core.schema.preset import PresetFile
from vramtui.presets.draft.draft import Draft
from vramtui.presets.library import PresetLibrary

# `typed`: by the form, which goes on; `changed`: by something else; `other`: another draft; `estimate`: only that.
Change = Literal["typed", "changed", "other", "estimate"]


class EditorHost(Protocol):
    """The dashboard, as far as the editor needs it; see `EditorController`."""

    def preset_saved(self, preset_file: PresetFile) -> None: ...

    def preset_deleted(self, key: str) -> None: ...

    def preset_closed(self) -> None: ...

    def running(self) -> tuple[int, str] | None: ...

    def runs_of(self, key: str) -> tuple[Run, ...]: ...

    @property
    def known_presets(self) -> PresetLibrary: ...


class OpenDraft:
    """One draft and its estimate.

    Attributes:
        look: the draft as it was last shown.

    Args:
        draft: what is edited.
        estimator: estimates it for one GPU.
        host: the dashboard.
        show: shows each change.
    """

    __slots__ = ("_show", "draft", "estimator", "host", "look")

    def __init__(
        self, draft: Draft, estimator: DraftEstimator, host: EditorHost, show: Callable[[Change], None]
    ) -> None:
        self._show = show
        self.host = host
        self.draft = draft
        self.estimator = estimator
        estimator.remember(draft)
        self.look: EditorView = estimator.look(draft)

    def begin(self, draft: Draft) -> None:
        """Edit another draft."""
        self.draft = draft
        self.estimator = DraftEstimator(self.estimator.predictor, self.estimator.card)
        self.estimator.remember(draft)
        self.refresh("other")

    def refresh(self, change: Change = "changed") -> None:
        """Estimate and show the draft."""
        if change != "typed":
            self.draft.end_step()
        self.look = self.estimator.look(self.draft)
        self._show(change)

    def look_again(self) -> None:
        """Show a more exact estimate as soon as there is one."""
        if self.estimator.is_nearer(self.look):
            self.look = self.estimator.look(self.draft)
            self._show("estimate")

    def saved(self) -> None:
        """Compare with the text that was saved."""
        self.estimator.remember(self.draft)
        self.refresh()

    def put(self, key: str, raw: str) -> None:
        """Take what is typed for a key."""
        self.draft.set_value(key, raw)
        self.refresh("typed")

    def choose(self, key: str, raw: str | None) -> None:
        """Set a key as one step; None clears it."""
        self.draft.end_step()
        if raw is None:
            self.draft.unset(key)
        else:
            self.draft.set_value(key, raw)
        self.refresh()

    def typed(self, text: str) -> bool:
        """Take the text of the text view; return whether it changed anything."""
        before = self.draft.text
        self.draft.set_text(text)
        if self.draft.text == before:
            return False
        self.look = self.estimator.look(self.draft)
        self._show("changed")
        return True
