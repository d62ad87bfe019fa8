"""The estimate of a draft, compared with that of its saved text."""

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
    """The GPU that a draft is estimated for, its name, and the bytes that other processes leave."""

    device: Device
    name: str
    room: int | None = None


class EditorView(msgspec.Struct, frozen=True, eq=False):
    """A draft at one moment.

    Attributes:
        groups: the form.
        problems: all errors.
        refused: what was typed and cannot be in the text, by key.
        saved: the values of the saved text by key.
        is_current: whether `estimate` is of the current text.
        estimate: of the last valid text; None if there has been none.
        is_quick: whether a more exact estimate will replace it.
        workload: what is estimated.
        before: the estimate of the saved text by the same method.
        card: the GPU.
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


class DraftEstimator:
    """Estimates a draft and its saved text for one GPU."""

    __slots__ = ("_before", "_saved", "card", "predictor")

    def __init__(self, predictor: Predictor, card: DraftCard) -> None:
        self.card = card
        self.predictor = predictor
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

    def look(self, draft: Draft) -> EditorView:
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
