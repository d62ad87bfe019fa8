"""Which keys of long lists a test looks at: what holds of the first and the last element holds of those between."""

import re
from collections.abc import Iterable


def place(key: str) -> str:
    """The key whatever its place in lists: `tensors[].shape` for `tensors[3].shape`."""
    return re.sub(r"\[\d+\]", "[]", key)


def first_and_last(keys: Iterable[str]) -> list[str]:
    """Of keys that differ only in their places in lists, the first and the last; in order."""
    ordered = list(keys)
    first = {place(key): key for key in reversed(ordered)}
    last = {place(key): key for key in ordered}
    wanted = {*first.values(), *last.values()}
    return [key for key in ordered if key in wanted]
