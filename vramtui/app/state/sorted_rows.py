"""The rows that a filter of the process table means, in the order that is asked for, with their predictions."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from vramtui.app.state.row import SORT_KEYS
from vramtui.app.state.view import ProcessRow, RowId, SortColumn
from vramtui.core.base.errors import nearest
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.observation.readings import Gpu, ProcessKey
from vramtui.core.observation.snapshot import device_of
from vramtui.core.schema.preset import PresetFile
from vramtui.monitor.job_reports import Jobs, bare_uuid, no_jobs, reporting

Condition = tuple[str, str]


def _user(row: ProcessRow, value: str) -> bool:
    return row.process is not None and (row.process.user or "").lower() == value


def _user_begins(row: ProcessRow, value: str) -> bool:
    return row.process is not None and (row.process.user or "").lower().startswith(value)


def _gpu(row: ProcessRow, value: str) -> bool:
    return str(row.gpu.index) == value or row.gpu.uuid.lower() == value


def _preset(row: ProcessRow, value: str) -> bool:
    return value in (row.preset or "").lower()


def _pid(row: ProcessRow, value: str) -> bool:
    return row.process is not None and str(row.process.pid) == value


def _command(row: ProcessRow, value: str) -> bool:
    return row.process is not None and value in (row.process.command_or_name or "").lower()


FORMS: dict[str, Callable[[ProcessRow, str], bool]] = {
    "user": _user,
    "gpu": _gpu,
    "pid": _pid,
    "preset": _preset,
    "cmd": _command,
}
_BEGUN = "user begins"  # the form of a user's name that is still being typed


def conditions(wanted: str) -> list[Condition]:
    """The words of a filter, each as the form that it has (`user:anna` has the form `user`; others have none) and what
    it asks for. A form that asks for nothing yet is left out.
    """
    tests = []
    for word in wanted.lower().split():
        form, colon, value = word.partition(":")
        if not colon or form not in FORMS:
            tests.append(("", word))
        elif value:
            tests.append((form, value))
    return tests


def holds(row: ProcessRow, wanted: list[Condition]) -> bool:
    """Whether a row fulfils every condition. A word without a form may stand in pid, user, command, preset or GPU."""
    text = ""
    for form, value in wanted:
        if form:
            test = _user_begins if form == _BEGUN else FORMS[form]
            if not test(row, value):
                return False
            continue
        text = text or _searched(row)
        if value not in text:
            return False
    return True


def pick_rows(rows: Sequence[ProcessRow], wanted: list[Condition]) -> list[ProcessRow]:
    """The rows that fulfil every condition; where none does, those of users whose names begin with what `user:` asks
    for, so that a name is found while it is typed.
    """
    picked = [row for row in rows if holds(row, wanted)]
    if picked or not any(form == "user" for form, _ in wanted):
        return picked
    begun = [(_BEGUN if form == "user" else form, value) for form, value in wanted]
    return [row for row in rows if holds(row, begun)]


def doubt(wanted: str) -> str:
    """Why a filter that finds nothing may have been meant otherwise; empty where it is plain."""
    for form, value in conditions(wanted):
        name, colon, asked = value.partition(":")
        if form == "pid" and not value.isdecimal():
            return f"{form}:{value} is invalid: a pid is a number."
        if form == "gpu" and not value.isdecimal() and not value.startswith(("gpu-", "mig-")):
            return f"{form}:{value} is invalid: a GPU is a number or a uuid."
        if not form and colon and name.isalpha() and asked:
            return f"There is no {name}:{nearest(name, FORMS)}; there are {', '.join(f'{known}:' for known in FORMS)}."
    return ""


def _searched(row: ProcessRow) -> str:
    parts = [row.gpu.name, row.kind, row.preset or ""]
    if row.process is not None:
        parts += [str(row.process.pid), row.process.user or "", row.process.command_or_name or ""]
    return " ".join(parts).lower()


Estimates = Callable[[PresetFile, Device], Estimate | None]
FROM_THE_SMALLEST = ("pid", "gpu", "user", "type", "command")


class RowPredictions:
    """Rows with the predictions of those whose process runs a preset. Each preset is asked for once a GPU.

    Args:
        listing: the rows.
        matched: the presets that their processes run.
        estimates: the estimate of a preset on a card.
        is_quick: whether a nearer estimate of it will replace that one.

    Attributes:
        rows: all of them, in the order of the listing.
    """

    __slots__ = ("_asked", "_estimates", "_is_quick", "_matched", "rows")

    def __init__(
        self,
        listing: Sequence[ProcessRow],
        matched: Mapping[ProcessKey, PresetFile],
        estimates: Estimates,
        is_quick: Callable[[PresetFile, Device], bool] = lambda _, __: False,
    ) -> None:
        self._matched = matched
        self._estimates = estimates
        self._is_quick = is_quick
        self._asked: dict[tuple[int, str], tuple[int | None, bool]] = {}
        self.rows = [self._predicted(row) for row in listing] if matched else listing

    @property
    def matched(self) -> list[ProcessRow]:
        """The rows whose process runs a preset."""
        return [row for row in self.rows if row.preset is not None]

    def _predicted(self, row: ProcessRow) -> ProcessRow:
        preset_file = self._matched.get(row.id) if isinstance(row.id, ProcessKey) else None
        if preset_file is None:
            return row
        predicted, is_quick = self._process(preset_file, row.gpu)
        fraction = row.peak / predicted - 1 if predicted and row.peak is not None else None
        return msgspec.structs.replace(
            row,
            predicted=predicted,
            fraction=fraction,
            preset=preset_file.key,
            is_assumed=preset_file.is_assumed,
            is_quick=is_quick,
        )

    def _process(self, preset_file: PresetFile, gpu: Gpu) -> tuple[int | None, bool]:
        at = (id(preset_file), gpu.uuid)  # not its key: two jobs of one preset may have values of their own
        if at not in self._asked:
            device = device_of(gpu)
            estimate = self._estimates(preset_file, device)
            self._asked[at] = (
                (None, False) if estimate is None else (estimate.process, self._is_quick(preset_file, device))
            )
        return self._asked[at]


class SortedRows(list[ProcessRow]):
    """Some of a listing's rows, in an order of their own.

    Args:
        rows: those.
        predicted: all of the listing.
    """

    def __init__(self, rows: Sequence[ProcessRow], predicted: RowPredictions) -> None:
        super().__init__(rows)
        self.predicted = predicted

    def selected_index(self, wanted: RowId | None, jobs: Jobs = no_jobs) -> int:
        """Where the row stands that was chosen by hand; else the first with a preset, else the first whose job reports
        figures of itself, else the first process, else the first.
        """
        if wanted is not None and (index := self._first(lambda row: row.id == wanted)) is not None:
            return index
        if (index := self._first(lambda row: row.preset is not None)) is not None:
            return index
        # In the listing's order, which sizes do not change: two such jobs would take turns.
        reporters = reporting(jobs)
        for reports in (row for row in self.predicted.rows if reporters and _reports(row, reporters)):
            if (index := self._first(lambda row, one=reports: row is one)) is not None:  # type: ignore[misc]  # bound now
                return index
        return self._first(lambda row: row.kind == "process") or 0

    def _first(self, is_meant: Callable[[ProcessRow], bool]) -> int | None:
        return next((index for index, row in enumerate(self) if is_meant(row)), None)


def _reports(row: ProcessRow, reporters: set[tuple[int, str]]) -> bool:
    return row.kind == "process" and row.process is not None and (row.process.pid, bare_uuid(row.gpu.uuid)) in reporters


def arranged(
    predicted: RowPredictions, wanted: str, column: SortColumn, frozen: Mapping[RowId, int] | None, *, reverse: bool
) -> SortedRows:
    """The rows that fulfil every word of `wanted`, sorted by `column`.

    Numbers begin with the largest and text with the first of the alphabet, unless `reverse`. What is not known
    comes last in both directions. Rows that are `frozen` keep that order, and others follow them.

    Args:
        predicted: all rows.
        wanted: words; every row where there are none.
        column: what is sorted by.
        frozen: the places of rows that keep them.
        reverse: the other way round.
    """
    words = conditions(wanted)
    rows = pick_rows(predicted.rows, words) if words else predicted.rows
    if frozen is None:
        return SortedRows(_sorted(rows, column, reverse=reverse), predicted)
    known = sorted((row for row in rows if row.id in frozen), key=lambda row: frozen[row.id])
    others = _sorted([row for row in rows if row.id not in frozen], column, reverse=reverse)
    return SortedRows([*known, *others], predicted)


def _sorted(rows: Sequence[ProcessRow], column: SortColumn, *, reverse: bool) -> list[ProcessRow]:
    key = SORT_KEYS[column]
    known = [row for row in rows if key(row) is not None]
    known.sort(key=key, reverse=(column not in FROM_THE_SMALLEST) != reverse)
    return known if len(known) == len(rows) else known + [row for row in rows if key(row) is None]
