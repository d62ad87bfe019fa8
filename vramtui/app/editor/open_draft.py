"""The draft that the editor has open: each change to it is estimated at once and shown everywhere."""

from typing import Protocol

from vramtui.app.editor.editor_view import DraftEstimator, EditorView
from vramtui.presets.draft.draft import Draft


class DraftDisplay(Protocol):
    """What shows the draft."""

    def finish(self) -> None:
        """What is being typed into the form stands."""
        ...

    def show(self, view: EditorView) -> None:
        """Show the draft as it is now."""
        ...

    def show_estimate(self, view: EditorView) -> None:
        """Show another estimate of the same draft."""
        ...

    def show_other(self, view: EditorView) -> None:
        """Show another draft than before, with the cursors on what is wrong or on what people change first."""
        ...

    def follow(self) -> None:
        """Put the text's cursor where the form's is."""
        ...


class OpenDraft:
    """One draft, its estimate, and whatever shows both. It is what the form writes with.

    Args:
        draft: what is edited.
        estimator: of the card that it is estimated for.

    Attributes:
        view: the draft as it was last shown.
    """

    def __init__(self, draft: Draft, estimator: DraftEstimator) -> None:
        self.draft = draft
        self.estimator = estimator
        estimator.remember(draft)
        self.view = estimator.look(draft)
        self._display: DraftDisplay | None = None

    def shown_by(self, display: DraftDisplay) -> None:
        """Show each change there from now on."""
        self._display = display

    def begin(self, draft: Draft) -> None:
        """Edit another draft."""
        self.draft = draft
        self.estimator = DraftEstimator(self.estimator.predictor, self.estimator.card)
        self.estimator.remember(draft)
        self.show_other()

    def show_other(self) -> None:
        """Show a draft that was not shown before."""
        self.view = self.estimator.look(self.draft)
        if self._display is not None:
            self._display.finish()
            self._display.show_other(self.view)

    def refresh(self) -> None:
        """Show the draft after something else than the form has changed it."""
        if self._display is not None:
            self._display.finish()
        self._show()

    def look_again(self) -> None:
        """Show a nearer estimate of the draft, where there is one by now."""
        if self.estimator.is_nearer(self.view):
            self.view = self.estimator.look(self.draft)
            if self._display is not None:
                self._display.show_estimate(self.view)

    def saved(self) -> None:
        """Compare with what the draft says now, which is what its file says."""
        self.estimator.remember(self.draft)
        self.refresh()

    def _show(self) -> None:
        self.view = self.estimator.look(self.draft)
        if self._display is not None:
            self._display.show(self.view)

    # --- what the form writes ------------------------------------------------------------------------------------

    def put(self, key: str, raw: str) -> None:
        self.draft.edits.set_value(key, raw)
        self._show()
        if self._display is not None:
            self._display.follow()

    def take_out(self, key: str) -> None:
        self.draft.edits.unset(key)
        self._show()

    def end_step(self) -> None:
        self.draft.edits.end_step()

    def add(self, key: str) -> str:
        added = self.draft.edits.add_item(key)
        self._show()
        return added

    def shift(self, key: str, by: int) -> str:
        there = self.draft.edits.move_item(key, by)
        self._show()
        return there

    # --- as a whole ----------------------------------------------------------------------------------------------

    def replace_text(self, text: str) -> None:
        """Take another text, as an undo step of its own."""
        self.draft.edits.end_step()
        self.draft.edits.set_text(text)
        self.draft.edits.end_step()
        self.refresh()

    def typed(self, text: str) -> bool:
        """Take the text as it was typed; whether it is another one."""
        before = self.draft.text
        if text != before:
            self.draft.edits.set_text(text)
        if self.draft.text == before:
            return False
        self.refresh()
        return True

    def undo(self) -> bool:
        """Back by one step; whether there was one."""
        possible = self.draft.edits.can_undo
        self.draft.edits.undo()
        self.refresh()
        return possible

    def redo(self) -> bool:
        """Forward again by one step; whether there was one."""
        possible = self.draft.edits.can_redo
        self.draft.edits.redo()
        self.refresh()
        return possible
