"""What the editor shows at one moment, made from the draft once for each change."""

from collections.abc import Mapping

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.schema.preset import Preset
from vramtui.core.schema.workload import Workload
from vramtui.monitor.predictor import Predictor
from vramtui.presets.draft.draft import Draft
from vramtui.presets.form.form import form_of
from vramtui.presets.form.types import FormGroup, fields_of
from vramtui.presets.reader import PresetProblem


class DraftCard(msgspec.Struct, frozen=True):
    """What a draft is estimated for: the card, what people call it, and how many of its bytes others leave."""

    device: Device
    name: str
    room: int | None = None


class EditorView(msgspec.Struct, frozen=True, eq=False):
    """A draft at one moment.

    Attributes:
        name: what commands call the preset by.
        groups: the form.
        problems: everything that is wrong.
        estimate: of the last text that was right; None where none has been yet. `is_current` when that is this text.
        is_quick: whether a nearer estimate will replace that one.
        workload: what it is of.
        before: the estimate of the saved text, against which changes are shown; by the same method as `estimate`.
        card: what it is estimated for.
        saved: the values of the saved text by their keys, spelt as the form's.
        refused: what was typed and cannot stand in the text, by key.
        is_changed: whether there is anything to save.
        where: a few words on where it is kept.
    """

    name: str
    groups: tuple[FormGroup, ...]
    problems: tuple[PresetProblem, ...]
    estimate: Estimate | None
    is_quick: bool
    workload: Workload | None
    is_current: bool
    before: Estimate | None
    card: DraftCard
    saved: Mapping[str, str | None]
    refused: Mapping[str, str]
    is_changed: bool
    where: str


class DraftEstimator:
    """Estimates a draft on one card; what it says of the saved text is kept to compare with."""

    def __init__(self, predictor: Predictor, card: DraftCard) -> None:
        self.card = card
        self.predictor = predictor
        self._before: Workload | None = None
        self._saved: Mapping[str, str | None] = {}

    def __call__(self, preset: Preset) -> Estimate:
        """Estimate the draft.

        Raises:
            UserError: there can be none.
        """
        answer = self.predictor.ask(preset.workload, self.card.device)
        if answer.estimate is None:
            raise UserError(answer.problem)
        return answer.estimate

    def remember(self, draft: Draft) -> None:
        """Compare with what `draft` says now."""
        self._saved = {key: field.value for key, field in fields_of(form_of(draft.saved_text, draft.folder)).items()}
        if draft.is_current or self._before is None:
            self._before = _workload_of(draft)

    def look(self, draft: Draft) -> EditorView:
        workload = _workload_of(draft)
        if self._before is None and draft.is_current:
            self._before = workload
        before = self._estimate(self._before)  # first, so that the draft is what is simulated next
        estimate = self._estimate(workload)
        is_quick = workload is not None and self.predictor.is_quick(workload, self.card.device)
        return EditorView(
            name=draft.name,
            groups=draft.form,
            problems=draft.problems,
            estimate=estimate,
            is_quick=is_quick,
            workload=workload,
            is_current=draft.is_current and not draft.problems,
            before=self._before_like(estimate, before),
            card=self.card,
            saved=self._saved,
            refused=draft.refused,
            is_changed=draft.is_changed,
            where=_where(draft),
        )

    def is_nearer(self, view: EditorView) -> bool:
        """Whether another estimate than the one in `view` answers by now, for the draft or for the saved text."""
        if view.is_quick:
            return self._estimate(view.workload) is not view.estimate
        if view.estimate is None or view.before is not None or self._before is None:
            return False
        before = self._estimate(self._before)
        return before is not None and before.method == view.estimate.method

    def _estimate(self, workload: Workload | None) -> Estimate | None:
        return None if workload is None else self.predictor.ask(workload, self.card.device).estimate

    def _before_like(self, estimate: Estimate | None, before: Estimate | None) -> Estimate | None:
        """What the saved text takes by the method of `estimate`, None where that is not known yet: between two methods
        a difference says nothing.
        """
        if estimate is None or before is None or self._before is None or before.method == estimate.method:
            return before
        quick = self.predictor.quick(self._before, self.card.device)
        return quick if quick is not None and quick.method == estimate.method else None


def _workload_of(draft: Draft) -> Workload | None:
    return None if draft.preset is None else draft.preset.workload


def _where(draft: Draft) -> str:
    if draft.path is None:
        return "new, not saved"
    if draft.bundled:
        return "Bundled preset: saving creates your copy"
    return "unsaved changes" if draft.is_changed else "saved"
