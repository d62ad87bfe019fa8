"""The draft that the editor has open, and its estimate. Each change is estimated at once and shown everywhere."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate, Ledger
from vramtui.core.schema.preset import Preset
from vramtui.core.schema.workload import Workload
from vramtui.monitor.predictor import Predictor
from vramtui.presets.draft.draft import Draft
from vramtui.presets.draft.form import FormGroup, fields_of, form_of
from vramtui.presets.reader import PresetProblem

if TYPE_CHECKING:
    from vramtui.app.editor.controller import EditorController

# `typed`: by the form, which goes on; `changed`: by something else; `other`: another draft; `estimate`: only that.
Change = Literal["typed", "changed", "other", "estimate"]


class DraftCard(msgspec.Struct, frozen=True):
    """The GPU that a draft is estimated for, its name, and the bytes that other processes leave."""

    device: Device
    name: str
    room: int | None = None


class EditorView(msgspec.Struct, frozen=True, eq=False):
    """A draft at one moment.

    Attributes:
        groups: the form.
        refused: what was typed and cannot be in the text, by key.
        saved: the values of the saved text by key.
        is_current: whether `estimate`, which is of the last valid text, is of the current one.
        is_quick: whether a more exact estimate will replace it.
        before: the estimate of the saved text by the same method.
        observed: of the process that the preset was opened for.
    """

    groups: tuple[FormGroup, ...]
    problems: tuple[PresetProblem, ...]
    refused: Mapping[str, str]
    saved: Mapping[str, str | None]
    is_current: bool
    estimate: Estimate | None
    is_quick: bool
    workload: Workload | None
    before: Estimate | None
    card: DraftCard
    observed: Ledger | None = None


class DraftEstimator:
    """Estimates a draft and its saved text for one GPU."""

    __slots__ = ("_before", "_saved", "card", "predictor")

    def __init__(self, predictor: Predictor, card: DraftCard) -> None:
        self.card, self.predictor = card, predictor
        self._before: Workload | None = None
        self._saved: Mapping[str, str | None] = {}

    def __call__(self, preset: Preset) -> Estimate:
        """Estimate a preset.

        Raises:
            UserError: it cannot be estimated.
        """
        answer = self.predictor.ask(preset.workload, self.card.device)
        if answer.estimate is None:
            raise UserError(answer.problem)
        return answer.estimate

    def remember(self, draft: Draft) -> None:
        """Compare with this text of the draft from now on."""
        self._saved = {key: field.value for key, field in fields_of(form_of(draft.saved_text, draft.folder)).items()}
        if draft.is_current or self._before is None:
            self._before = None if draft.preset is None else draft.preset.workload

    def look(self, draft: Draft, observed: Ledger | None = None) -> EditorView:
        workload = None if draft.preset is None else draft.preset.workload
        if self._before is None and draft.is_current:
            self._before = workload
        before = self._estimate(self._before)  # first, so that the draft is simulated next
        estimate = self._estimate(workload)
        if estimate is not None and before is not None and self._before is not None:
            # A difference between two methods says nothing.
            quick = before if before.method == estimate.method else self.predictor.quick(self._before, self.card.device)
            before = quick if quick is not None and quick.method == estimate.method else None
        return EditorView(
            groups=draft.form,
            problems=draft.problems,
            refused=draft.refused,
            saved=self._saved,
            is_current=draft.is_current and not draft.problems,
            estimate=estimate,
            is_quick=workload is not None and self.predictor.is_quick(workload, self.card.device),
            workload=workload,
            before=before,
            card=self.card,
            observed=observed,
        )

    def is_nearer(self, view: EditorView) -> bool:
        """Return whether there is a more exact estimate than the one shown, of the draft or of the saved text."""
        if view.is_quick:
            return self._estimate(view.workload) is not view.estimate
        if view.estimate is None or view.before is not None or self._before is None:
            return False
        before = self._estimate(self._before)
        return before is not None and before.method == view.estimate.method

    def _estimate(self, workload: Workload | None) -> Estimate | None:
        return None if workload is None else self.predictor.ask(workload, self.card.device).estimate


class OpenDraft:
    """One draft and its estimate; `look` is the draft as it was last shown, by `show`."""

    __slots__ = ("_show", "draft", "estimator", "host", "look")

    def __init__(
        self, draft: Draft, estimator: DraftEstimator, host: "EditorController", show: Callable[[Change], None]
    ) -> None:
        self.draft, self.estimator, self.host, self._show = draft, estimator, host, show
        estimator.remember(draft)
        self.look: EditorView = estimator.look(draft, host.observed())

    def begin(self, draft: Draft) -> None:
        self.draft = draft
        self.estimator = DraftEstimator(self.estimator.predictor, self.estimator.card)
        self.estimator.remember(draft)
        self.refresh("other")

    def refresh(self, change: Change = "changed") -> None:
        """Estimate and show the draft."""
        if change not in {"typed", "estimate"}:
            self.draft.end_step()
        self.look = self.estimator.look(self.draft, self.host.observed())
        self._show(change)

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
        self.look = self.estimator.look(self.draft, self.host.observed())
        self._show("changed")
        return True
