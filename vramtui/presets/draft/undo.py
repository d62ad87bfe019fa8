"""Undo and redo over a text, in steps as a person would count them."""

import msgspec

MOST = 1000


class Step(msgspec.Struct, frozen=True, gc=False):
    """At `start`, `removed` became `inserted`; `place` is the key it was done for, empty for typing in the text."""

    place: str
    start: int
    removed: str
    inserted: str

    def done(self, text: str) -> str:
        """`text` after it."""
        return text[: self.start] + self.inserted + text[self.start + len(self.removed) :]

    def undone(self, text: str) -> str:
        """`text` before it."""
        return text[: self.start] + self.removed + text[self.start + len(self.inserted) :]


def step_between(before: str, after: str, place: str = "") -> Step:
    """What changed between two texts, as one replacement in one place."""
    start = _shared(before, after)
    tail = _shared(before[start:][::-1], after[start:][::-1])
    return Step(place, start, before[start : len(before) - tail], after[start : len(after) - tail])


def _shared(one: str, other: str) -> int:
    """The length of the beginning that both have."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


class Steps:
    """What was done and can be undone: consecutive typing in one place is one step; at most `MOST` are kept."""

    def __init__(self) -> None:
        self._done: list[Step] = []
        self._undone: list[Step] = []
        self._closed = True

    @property
    def can_undo(self) -> bool:
        return bool(self._done)

    @property
    def can_redo(self) -> bool:
        return bool(self._undone)

    def close(self) -> None:
        """What comes next is a step of its own."""
        self._closed = True

    def add(self, before: str, after: str, place: str = "", *, alone: bool = False) -> None:
        """Remember that `before` became `after`; together with the last step where both are the same typing."""
        step = step_between(before, after, place)
        self._undone.clear()
        last = self._done[-1] if self._done and not self._closed and not alone else None
        if last is not None and _go_on(last, step):
            self._done.pop()
            step = step_between(last.undone(before), after, place)
        self._closed = alone
        if step.removed != step.inserted:
            self._done.append(step)
            del self._done[:-MOST]

    def undo(self, text: str) -> str:
        """`text` before the last step; as it is when there is none."""
        self._closed = True
        if not self._done:
            return text
        step = self._done.pop()
        self._undone.append(step)
        return step.undone(text)

    def redo(self, text: str) -> str:
        """`text` after the step that was undone last."""
        self._closed = True
        if not self._undone:
            return text
        step = self._undone.pop()
        self._done.append(step)
        return step.done(text)


def _go_on(last: Step, step: Step) -> bool:
    """Whether `step` goes on with what `last` did: the same key's value, or typing where the other left off."""
    if last.place or step.place:
        return last.place == step.place
    if max(len(step.inserted), len(step.removed)) > 1 or "\n" in step.inserted:
        return False
    end = last.start + len(last.inserted)
    within = last.start <= step.start and step.start + len(step.removed) <= end
    backwards = step.start + len(step.removed) == last.start and not last.inserted
    forwards = step.start == last.start and not last.inserted
    return within or backwards or forwards
