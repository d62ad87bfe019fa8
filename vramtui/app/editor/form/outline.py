"""Which entries of the form are shown, one below the other: tables, their fields, and what is in an opened list."""

from collections.abc import Iterator

from vramtui.presets.form.types import FormField, FormGroup, within

Entry = FormGroup | FormField
# Behind the key of a table: the line below its fields that the keys it does not set are folded behind.
UNSET = "/unset"
# As many lines are worth a fold; what is off by default is folded, too.
FOLD_FROM = 3
OFF = {None, "false", "0", "0.0"}


class Outline:
    """The entries in their order, with a cursor; what is open stays open when the draft changes."""

    def __init__(self) -> None:
        self.groups: tuple[FormGroup, ...] = ()
        self.entries: list[Entry] = []
        self.depths: list[int] = []
        self.at = 0
        self.opened: dict[str, bool] = {}
        self._folded: dict[str, tuple[str, ...]] = {}

    @property
    def entry(self) -> Entry | None:
        return self.entries[self.at] if self.at < len(self.entries) else None

    @property
    def key(self) -> str:
        """The key of what the cursor is on, a table's in brackets; empty where there is nothing."""
        return key_of_entry(self.entry) if self.entry is not None else ""

    @property
    def typed_field(self) -> FormField | None:
        """The field that the cursor is on, where its value is typed and not chosen."""
        entry = self.entry
        return entry if isinstance(entry, FormField) and entry.kind not in {"choice", "bool"} else None

    @property
    def can_be_cleared(self) -> bool:
        """Whether the cursor is on something that may be left out."""
        entry = self.entry
        if entry is None or not entry.key or entry.key.endswith(UNSET):
            return False
        return not (entry.required if isinstance(entry, FormGroup) else entry.is_new)

    @property
    def element(self) -> FormField | None:
        """The element of a list that the cursor is on, or of the list that it is on the place for one more."""
        entry = self.entry
        if not isinstance(entry, FormField):
            return None
        item = entry.items[-1] if entry.many and not entry.is_new else entry
        return item if item.key.endswith("]") else None

    def take(self, groups: tuple[FormGroup, ...], *, anew: bool = False) -> None:
        """Show these from now on; the cursor stays on its field. `anew`: nothing is opened, and what another draft does
        not set is folded. Within one draft a field stays where it is when it gets a value or loses it.
        """
        key = self.key
        if anew:
            self.opened.clear()
            self._folded.clear()
        for group in groups:
            # Another kind of model has other keys.
            if not set(self._folded.get(group.key, ())) <= {field.key for field in group.fields}:
                del self._folded[group.key]
            self._folded.setdefault(group.key, folded(group))
        self.groups = groups
        self._list(key)

    def reveal(self, key: str) -> None:
        """Put the cursor on the field called `key`, and open what it is in."""
        for group in self.groups:
            holds = [
                field
                for field in group.fields
                if key == field.key or key.startswith((f"{field.key}[", f"{field.key}."))
            ]
            if holds and not self.is_open(group):
                self.opened[group.key] = True
            if any(field.key in self._folded.get(group.key, ()) for field in holds):
                self.opened[f"{group.key}{UNSET}"] = True
            for inner in (inner for field in holds for inner in within(field) if inner.items):
                if key.startswith((f"{inner.key}[", f"{inner.key}.")):
                    self.opened[inner.key] = True
        self._list(key)

    def open(self, entry: Entry, *, wanted: bool) -> None:
        """Show the fields of a table or the elements of a list, or only its title; the cursor is there then."""
        self.opened[entry.key] = wanted
        self._list(key_of_entry(entry))

    def is_open(self, entry: Entry) -> bool:
        """Tables that are not there stay closed until somebody opens them, and so do lists."""
        if entry.key in self.opened:
            return self.opened[entry.key]
        if isinstance(entry, FormField) or entry.key.endswith(UNSET):
            return False
        return entry.required or entry.line is not None or any(field.value is not None for field in entry.fields)

    def exchange(self, one: str, other: str) -> None:
        """Two elements of a list are in each other's place."""
        self.opened[one], self.opened[other] = self.opened.get(other, False), self.opened.get(one, False)

    def title_above(self) -> int:
        """The number of the title of the table that the cursor is in."""
        titles = [at for at, entry in enumerate(self.entries[: self.at + 1]) if is_title(entry)]
        return titles[-1] if titles else 0

    def key_at_line(self, line: int) -> str:
        """The key of what stands at `line` of the text or before it; a closed list's, for what is in it."""
        best: tuple[int, str] = (0, "")
        for group in self.groups:
            entries: list[Entry] = [group]
            entries += [entry for field in group.fields for entry, _ in self._within(field, 0)]
            keys = [(e.line, key_of_entry(e)) for e in entries if e.line is not None and e.line <= line]
            best = max([best, *keys], key=lambda one: one[0])
        return best[1]

    def _list(self, key: str) -> None:
        shown = list(self._all())
        self.entries, self.depths = [entry for entry, _ in shown], [depth for _, depth in shown]
        keys = [key_of_entry(entry) for entry in self.entries]
        self.at = keys.index(key) if key in keys else max(0, min(self.at, len(keys) - 1))

    def _all(self) -> Iterator[tuple[Entry, int]]:
        for group in self.groups:
            yield group, 0
            if not self.is_open(group):
                continue
            fold = self._fold(group)
            hidden = set() if fold is None else {field.key for field in fold.fields}
            for field in group.fields:
                if field.key not in hidden:
                    yield from self._within(field, 0)
            if fold is not None:
                yield fold, 1
                for field in fold.fields if self.is_open(fold) else ():
                    yield from self._within(field, 0)

    def _fold(self, group: FormGroup) -> FormGroup | None:
        """The line that stands for the keys that a table does not set; None where there is none."""
        key = f"{group.key}{UNSET}"
        behind = self._folded.get(group.key, ())
        # One that was set by hand while the line was closed is shown in its own place.
        fields = tuple(f for f in group.fields if f.key in behind and (f.value is None or self.opened.get(key)))
        if not fields:
            return None
        many = f"{len(fields)} more key{'s' if len(fields) > 1 else ''}"
        return FormGroup(title=many, key=key, help="Right shows them, / finds one by its name.", fields=fields)

    def _within(self, field: FormField, depth: int) -> Iterator[tuple[FormField, int]]:
        """A field, and behind it what is in it, where that was opened."""
        yield field, depth
        if self.is_open(field):
            for item in field.items:
                yield from self._within(item, depth + 1)


def is_title(entry: Entry) -> bool:
    """Whether it is a table's title."""
    return isinstance(entry, FormGroup) and not entry.key.endswith(UNSET)


def key_of_entry(entry: Entry) -> str:
    """A field's key; a table's in brackets."""
    return f"[{entry.key}]" if isinstance(entry, FormGroup) else entry.key


def outer_key(key: str) -> str:
    """The key of what an element, or a key of one, is in."""
    return key.rpartition("." if "." in key.rpartition("]")[2] else "[")[0]


def folded(group: FormGroup) -> tuple[str, ...]:
    """The keys of a table that it does not set and that stand for nothing then; none where it sets nothing at all."""
    if not any(field.value is not None for field in group.fields):
        return ()
    keys = tuple(f.key for f in group.fields if f.value is None and not f.required and f.default in OFF)
    return keys if len(keys) >= FOLD_FROM else ()
