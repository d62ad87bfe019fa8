"""The lines of the form: tables, their fields, and a line for the keys that a table does not set."""

from collections.abc import Iterable

from vramtui.presets.draft.form import FormField, FormGroup, fields_of
from vramtui.presets.reader import PresetProblem

Entry = FormGroup | FormField
# Behind the key of a table: the line for the keys that it does not set.
UNSET = "/unset"
FOLD_FROM = 3
OFF = {None, "false", "0", "0.0"}
# Numbers go by 1 up to 32, then by 8 up to 256, and so on.
STEPS = ((1, 32), (8, 256), (64, 1024), (512, 1 << 14), (4096, 1 << 17), (1 << 16, 1 << 62))
SHARE = 0.05


class Outline:
    """The entries in their order. Tables that the text does not have are closed."""

    __slots__ = ("_folded", "_opened", "groups")

    def __init__(self) -> None:
        self.groups: tuple[FormGroup, ...] = ()
        self._opened: dict[str, bool] = {}
        self._folded: dict[str, frozenset[str]] = {}

    def take(self, groups: tuple[FormGroup, ...], *, anew: bool = False) -> None:
        """Show another form. In another draft (`anew`) unset keys are folded again; within a draft fields stay where
        they are when they get or lose a value.
        """
        if anew:
            self._opened.clear()
            self._folded.clear()
        for group in groups:
            # Another kind of model has other keys.
            if not self._folded.get(group.key, frozenset()) <= {field.key for field in group.fields}:
                del self._folded[group.key]
            self._folded.setdefault(group.key, _folded(group))
        self.groups = groups

    def entries(self) -> list[Entry]:
        entries: list[Entry] = []
        for group in self.groups:
            entries.append(group)
            if not self.is_open(group):
                continue
            fold = f"{group.key}{UNSET}"
            shows_all = self._opened.get(fold, False)
            # A key that was set while the fold was closed moves out of it.
            behind = [f for f in group.fields if f.key in self._folded[group.key] and (f.value is None or shows_all)]
            entries += [field for field in group.fields if field not in behind]
            if behind:
                title = f"{len(behind)} more key{'s' if len(behind) > 1 else ''}"
                shown_help = "Right shows them, / finds one by its name."
                entries.append(FormGroup(title=title, key=fold, help=shown_help, fields=tuple(behind)))
                entries += behind if shows_all else []
        return entries

    def is_open(self, group: FormGroup) -> bool:
        if group.key in self._opened or group.key.endswith(UNSET):
            return self._opened.get(group.key, False)
        return group.required or group.line is not None or any(field.value is not None for field in group.fields)

    def open(self, group: FormGroup, *, wanted: bool) -> None:
        self._opened[group.key] = wanted

    def reveal(self, key: str) -> None:
        """Open the table and the fold that a field is in."""
        for group in self.groups:
            if key in {field.key for field in group.fields}:
                self._opened[group.key] = True
                if key in self._folded.get(group.key, ()):
                    self._opened[f"{group.key}{UNSET}"] = True

    def key_at_line(self, line: int) -> str:
        """Return the key of the entry at a line of the text or before it."""
        entries: list[Entry] = [*self.groups, *(field for group in self.groups for field in group.fields)]
        keys = [(entry.line, key_of_entry(entry)) for entry in entries if entry.line is not None and entry.line <= line]
        return max(keys, key=lambda one: one[0], default=(0, ""))[1]


def _folded(group: FormGroup) -> frozenset[str]:
    """Return the keys that a table does not set and that are off by default; none if it sets nothing at all."""
    if not any(field.value is not None for field in group.fields):
        return frozenset()
    keys = frozenset(f.key for f in group.fields if f.value is None and not f.required and f.default in OFF)
    return keys if len(keys) >= FOLD_FROM else frozenset()


def key_of_entry(entry: Entry) -> str:
    """Return a field's key, or a table's in brackets."""
    return f"[{entry.key}]" if isinstance(entry, FormGroup) else entry.key


def first_key(groups: tuple[FormGroup, ...], problems: Iterable[PresetProblem] = ()) -> str:
    """Return the field to begin at: the first error, else the batch size, else the first number of the run."""
    tables, fields = {group.key: group for group in groups}, fields_of(groups)
    for problem in problems:
        if problem.key in fields:
            return problem.key
        inside = tables[problem.key].fields if problem.key in tables else ()
        if needed := next((field.key for field in inside if field.required and field.value is None), ""):
            return needed
    run = tables.get("run")
    inside = () if run is None else run.fields
    numbers = [field for field in inside if field.kind in {"int", "float"}]
    order = [
        *(field for field in inside if field.key.endswith(".batch_size")),
        *(field for field in numbers if field.value is not None),
        *numbers,
        *inside,
    ]
    return order[0].key if order else ""


def stepped(field: FormField, direction: int) -> str | None:
    """Return the value after (1) or before (-1) the field's value or default; None if there is none."""
    now = field.value if field.value is not None else field.default
    if field.kind == "bool":
        return "false" if now == "true" else "true"
    if field.kind == "choice" and field.choices:
        if now not in field.choices:
            return field.choices[0 if direction > 0 else -1]
        return field.choices[(field.choices.index(now) + direction) % len(field.choices)]
    try:
        number = float((now or "0").replace("_", "")) if field.kind == "float" else int(now or "0", 0)
    except ValueError:
        return None
    if field.kind == "int":
        lowest = 0 if field.minimum is None else int(field.minimum) + field.minimum_excluded
        if now is None:
            return str(lowest)
        step = next(step for step, below in STEPS if abs(number) < below or (abs(number) == below and direction < 0))
        wanted = (number // step + 1) * step if direction > 0 else (-(-number // step) - 1) * step
        highest = wanted if field.maximum is None else int(field.maximum) - field.maximum_excluded
        return str(int(max(lowest, min(highest, wanted))))
    if field.kind != "float":
        return None
    share = round(number + direction * (SHARE if abs(number) <= 1 else 1.0), 6)
    low, high = field.minimum, field.maximum
    if low is not None and (share < low or (share == low and field.minimum_excluded)):
        return None
    if high is not None and (share > high or (share == high and field.maximum_excluded)):
        return None
    return repr(share)
