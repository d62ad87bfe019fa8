"""Look for what breaks a promise, for as long as one likes, and keep it: every `make test` tries it again.

python -m tests.fuzz [TARGET ...] [--seconds 60]

A target is a kind of input (bytes that are nearly right, made smaller by Hypothesis once they break something) or
`fields`: several values of a document at once that may stand in no such place. All of them where none is named, each
for so many seconds. What breaks goes to `tests/fuzz/corpus/`; commit it with what mends it. Exit: 1 where any did.
"""

import argparse
import hashlib
import json
import random
import sys
import time

from hypothesis import given, seed, settings

from tests.fuzz.inputs import near
from tests.fuzz.targets import CORPUS, EVERY, seeds, settings_of
from tests.outside_readers import document
from tests.outside_values import ABSENT, TEXT, VALUES, changed, keys_of
from tests.test_outside_values import EVERY as DOCUMENTS
from tests.test_outside_values import failure_of

FIELDS = "fields"
AT_ONCE = 200  # examples between two looks at the clock
MOST_CHANGED = 4  # fields at once


def fuzz(name: str, seconds: float) -> tuple[int, str]:
    """How many inputs were tried, and what the last of them broke; empty where nothing."""
    tried, last = 0, b""
    target, inputs = EVERY[name], (*seeds(name), *(path.read_bytes() for path in (CORPUS / name).glob("*")))

    def follow(data: bytes) -> None:
        nonlocal tried, last
        tried, last = tried + 1, data
        target(data)

    test = settings_of(settings(max_examples=AT_ONCE))(given(near(name, inputs))(follow))
    until = time.monotonic() + seconds
    try:
        while time.monotonic() < until:
            seed(random.getrandbits(64))(test)()
    except Exception as error:  # noqa: BLE001 - whatever it is, that is what is looked for
        path = CORPUS / name / hashlib.sha256(last).hexdigest()[:12]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(last)  # the smallest that breaks it: Hypothesis tries that at the end
        return tried, f"{type(error).__name__}: {str(error)[:200]} ({path})"
    return tried, ""


def fuzz_fields(seconds: float) -> tuple[int, str]:
    until, tried = time.monotonic() + seconds, 0
    values = [value for value in (*VALUES, 2**30, 2**32, 2**40) if value is not TEXT]
    while time.monotonic() < until:
        reader, base = random.choice(DOCUMENTS)
        case, changes = document(reader, base), []
        for key in random.sample(keys := list(keys_of(case)), min(len(keys), random.randint(2, MOST_CHANGED))):
            value = random.choice(values)
            try:
                case = changed(case, key, value)
            except (KeyError, IndexError, TypeError):
                continue  # what stood above it has gone
            changes.append([key] if value is ABSENT else [key, value])
        tried += 1
        if failure := failure_of(reader, case):
            with (CORPUS / f"{FIELDS}.jsonl").open("a") as corpus:
                corpus.write(json.dumps({"reader": reader, "base": base, "changes": changes}) + "\n")
            return tried, f"{failure} ({reader} {base} {changes})"
    return tried, ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"one of {', '.join(EVERY)}, {FIELDS}")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each target")
    options = parser.parse_args()
    if unknown := set(options.targets) - {*EVERY, FIELDS}:
        parser.error(f"no target is called {', '.join(sorted(unknown))}; there are {', '.join(EVERY)} and {FIELDS}")
    broken = 0
    for name in options.targets or (*EVERY, FIELDS):
        tried, failure = fuzz_fields(options.seconds) if name == FIELDS else fuzz(name, options.seconds)
        broken += bool(failure)
        sys.stdout.write(f"{name:<20} {tried:>8,} tried  {failure or 'none broken'}\n")
        sys.stdout.flush()
    raise SystemExit(broken > 0)


if __name__ == "__main__":
    main()
