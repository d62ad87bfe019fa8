"""What may be said of a place in loops: by a list of the config, by a key that counts layers, or by itself."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

LOOPS = ("i", "j", "k", "l")
# Keys whose number says in which of many layers something is.
HINTS = (
    "first", "interval", "period", "freq", "step", "every", "dense", "sparse", "pattern", "hash", "shared_layers",
    "offset",
)  # fmt: skip
Index = tuple[int, ...]
Predicate = tuple[str, frozenset[Index]]
# How likely it is, the text, and whether it holds at a place.
Rule = tuple[int, str, Callable[[int], bool]]
# Keys that list places, and those that say of how many layers one is of its kind.
LISTING = ("layer", "index", "indices", "idx", "block", "attn")
REPEATING = ("interval", "period", "freq", "step", "every", "pattern", "offset")
# Lists that name stages, and say nothing of them.
NAMED = ("stage_names", "out_features", "out_indices")
STEPS = (2, 3, 4, 5, 6, 8)


def predicates(universe: Sequence[Index], counts: Sequence[str], values: Mapping[str, Any]) -> list[Predicate]:
    """What may be said of a place in the loops, the likeliest first.

    Args:
        universe: every place.
        counts: how often each loop runs, as expressions.
        values: the config's keys by their paths.
    """
    found: list[tuple[int, str, frozenset[Index]]] = []
    for level, name in enumerate(LOOPS[: len(counts)]):
        size = 1 + max(place[level] for place in universe)
        for rank, text, holds in _rules(name, counts[level], size, values):
            members = frozenset(place for place in universe if holds(place[level]))
            if 0 < len(members) < len(universe):
                found.append((rank, text, members))
    seen: dict[frozenset[Index], str] = {}
    for _rank, text, members in sorted(found, key=lambda one: one[0]):
        seen.setdefault(members, text)
    return [(text, members) for members, text in seen.items()]


def _rules(name: str, count: str, size: int, values: Mapping[str, Any]) -> Iterator[Rule]:
    for key, value in values.items():
        if isinstance(value, (list, tuple)) and value:
            yield from _by_list(name, key, value, size)
        elif isinstance(value, int) and not isinstance(value, bool) and any(hint in key for hint in HINTS):
            yield from _by_key(name, count, size, key, int(value))
            yield from _by_offset(name, key, values)
    yield from _by_itself(name, count, size)


def _by_list(name: str, key: str, listed: Sequence[Any], size: int) -> Iterator[Rule]:
    fits = len(listed) == size or ("type" in key and len(listed) > size)
    kinds = all(isinstance(item, (str, bool)) or item in (0, 1) for item in listed)
    if fits and kinds and not key.endswith(NAMED):
        for item in dict.fromkeys(listed):
            text = f"{key}[{name}] == {item!r}"
            if isinstance(item, bool):
                text = f"{key}[{name}]" if item else f"not {key}[{name}]"
            yield 0 if isinstance(item, (str, bool)) else 2, text, lambda at, item=item: listed[at] == item  # type: ignore[misc] # bound where it is made
    if all(isinstance(item, int) for item in listed) and any(one in key for one in LISTING):
        yield 1, f"{name} in {key}", lambda at: at in listed
        yield 1, f"{name} not in {key}", lambda at: at not in listed


def _by_key(name: str, count: str, size: int, key: str, number: int) -> Iterator[Rule]:
    rank = 1 if 0 < number < size else 9
    yield rank, f"{name} < {key}", lambda at: at < number
    yield rank, f"{name} >= {key}", lambda at: at >= number
    yield rank, f"{name} < {count} - {key}", lambda at: at < size - number
    yield rank, f"{name} >= {count} - {key}", lambda at: at >= size - number
    if 1 < number < size and any(one in key for one in REPEATING):
        for more, shifted in ((1, f"({name} + 1)"), (0, name), (-1, f"({name} - 1)")):
            yield 1, f"{shifted} % {key} == 0", lambda at, more=more: (at + more) % number == 0  # type: ignore[misc] # bound where it is made
            yield 2, f"{shifted} % {key} != 0", lambda at, more=more: (at + more) % number != 0  # type: ignore[misc] # bound where it is made


def _by_offset(name: str, key: str, values: Mapping[str, Any]) -> Iterator[Rule]:
    """One of so many layers, from the one on that a key beside it says."""
    beside = next((key.replace(one, "offset") for one in ("period", "freq", "interval") if one in key), "")
    step, start = values[key], values.get(beside)
    if isinstance(start, int) and step > 1:
        yield 0, f"{name} % {key} == {beside}", lambda at: at % step == start
        yield 0, f"{name} % {key} != {beside}", lambda at: at % step != start


def _by_itself(name: str, count: str, size: int) -> Iterator[Rule]:
    yield 3, f"{name} == 0", lambda at: at == 0
    yield 3, f"{name} > 0", lambda at: at > 0
    yield 3, f"{name} == {count} - 1", lambda at: at == size - 1
    yield 3, f"{name} < {count} - 1", lambda at: at < size - 1
    for number in (1, 2, 3):
        yield 6, f"{name} == {number}", lambda at, number=number: at == number  # type: ignore[misc] # bound where it is made
        yield 5, f"{name} > {number}", lambda at, number=number: at > number  # type: ignore[misc] # bound where it is made
        yield 5, f"{name} <= {number}", lambda at, number=number: at <= number  # type: ignore[misc] # bound where it is made
    for step in STEPS:
        for rest in range(min(step, size)):
            yield 4, f"{name} % {step} == {rest}", lambda at, step=step, rest=rest: at % step == rest  # type: ignore[misc] # bound where it is made
            yield 4, f"{name} % {step} != {rest}", lambda at, step=step, rest=rest: at % step != rest  # type: ignore[misc] # bound where it is made
