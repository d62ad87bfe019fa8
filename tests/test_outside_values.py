"""Each reader against each of its fields: whatever stands there, it is a sentence or an answer, in bounded time.

The cases are made from the schemas, so that a new field is tried without anybody's doing. `python -m tests.fuzz fields`
changes several fields at once, as long as one likes; what it found stays in `fuzz/corpus/fields.jsonl`.
"""

import json
import operator
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.outside_readers import BASES, READERS, document
from tests.outside_values import ABSENT, LARGEST, MILLION, VALUES, Key, bounds_of, changed, keys_of
from vramtui.core.schema.preset import Preset

PROCESSOR = 10.0  # seconds of one case: five times what a person waits for on a machine of their own
MEMORY = 300 << 20
CORPUS = Path(__file__).parent / "fuzz" / "corpus" / "fields.jsonl"
EVERY = [(reader, base) for reader in READERS for base in BASES[reader]]


class TooLongError(Exception):
    """A case took more of the processor than it may."""


@contextmanager
def bounded_case() -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise TooLongError

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, PROCESSOR)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def failures(reader: str, base: str, keys: list[Key], values: Callable[[Key], tuple[object, ...]]) -> list[str]:
    right, found = document(reader, base), []
    for key in keys:
        for value in values(key):
            failure = failure_of(reader, changed(right, key, value))
            if failure:
                found.append(f"{reader} {base} {key} = {'nothing' if value is ABSENT else repr(value)[:40]}: {failure}")
    return found


def failure_of(reader: str, case: dict[str, Any]) -> str:
    """What a reader does with a document but answer it or say in a sentence what is wrong; empty where nothing."""
    read, sentences = READERS[reader]
    try:
        with bounded_case():
            read(case)
    except sentences:
        return ""
    except Exception as error:  # noqa: BLE001 - any other is what is looked for
        return f"{type(error).__name__}: {str(error)[:100]}"
    return ""


def tried_before(reader: str, base: str) -> set[Key]:
    kind, found = _kind(document(reader, base)), set[Key]()
    for earlier in BASES[reader][: BASES[reader].index(base)]:
        right = document(reader, earlier)
        found |= {key for key in keys_of(right) if key[0] != "model" or _kind(right) == kind}
    return found


def _kind(right: dict[str, Any]) -> object:
    model = right.get("model")
    return model.get("kind") if isinstance(model, dict) else None


@pytest.mark.slow
@pytest.mark.parametrize(("reader", "base"), EVERY)
def test_each_field_of_each_reader(reader: str, base: str) -> None:
    """A key that another document has as well gets every value there, and here the largest ones alone."""
    right = document(reader, base)
    keys, before_this = list(keys_of(right)), tried_before(reader, base)

    def values(key: Key) -> tuple[object, ...]:
        bounds = bounds_of(key, Preset, right) if reader == "preset" else ()
        return (*(LARGEST if key in before_this else VALUES), *bounds, *(bound + 1 for bound in bounds))

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert failures(reader, base, keys, values) == []
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEMORY >> 10


def test_what_was_found_stays_found() -> None:
    for line in CORPUS.read_text().splitlines():
        kept = json.loads(line)
        case = document(kept["reader"], kept["base"])
        for key, *value in kept["changes"]:
            case = changed(case, tuple(key), value[0] if value else ABSENT)
        assert failure_of(kept["reader"], case) == "", line


@pytest.mark.parametrize("reader", READERS)
def test_a_list_of_a_million(reader: str) -> None:
    base = BASES[reader][0]
    right: Any = document(reader, base)
    keys = list(keys_of(right))
    lists = [key for key in keys if isinstance(reduce(operator.getitem, key, right), list)]
    assert failures(reader, base, [*lists[:4], keys[0]], lambda _: (MILLION,)) == []
