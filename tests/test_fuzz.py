"""A few hundred broken inputs for everything that others write; benchmarks/fuzz.py goes on for as long as it is let."""

import json
import sys
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, seed, settings

from benchmarks.fuzz import NAMES
from benchmarks.fuzz_far import FAR_TARGETS, far_seeds
from benchmarks.fuzz_files import FILE_TARGETS, file_seeds
from benchmarks.fuzz_grammar import MUTATORS, mutated_for
from benchmarks.fuzz_inputs import near
from benchmarks.fuzz_mutations import LARGEST, mutated
from benchmarks.fuzz_targets import CUT, HOSTILE, TARGETS, recordings, seeds, shown
from tests.properties import examples
from vramtui.cli.ps import ps
from vramtui.core.base.errors import UserError
from vramtui.records.recording.live import LiveRecording

EXAMPLES = 60


@pytest.mark.parametrize("name", TARGETS)
def test_broken_input_keeps_every_promise(name: str) -> None:
    quiet = settings(examples(EXAMPLES), database=None, suppress_health_check=list(HealthCheck), derandomize=False)
    seed(20)(quiet(given(near(seeds(name)))(TARGETS[name])))()


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_right_is_taken(name: str) -> None:
    for data in seeds(name):
        TARGETS[name](data)


@pytest.mark.parametrize("name", FAR_TARGETS)
def test_what_comes_from_elsewhere_keeps_every_promise(name: str) -> None:
    for data in far_seeds(name):
        FAR_TARGETS[name](data)
    quiet = settings(examples(20), database=None, suppress_health_check=list(HealthCheck))
    seed(20)(quiet(given(near(far_seeds(name)))(FAR_TARGETS[name])))()


@pytest.mark.parametrize("name", FILE_TARGETS)
def test_files_of_others_keep_every_promise(name: str) -> None:
    """By changes that keep the format's grammar, as the fuzz command makes them."""
    inputs, random, change = list(file_seeds(name)), Random(20), mutated_for(name)
    for data in inputs[:4]:
        FILE_TARGETS[name](data)
    for _ in range(40):
        data = change(random.choice(inputs), random.choice(inputs), random)
        inputs.append(data)
        FILE_TARGETS[name](data)


@pytest.mark.parametrize("name", MUTATORS)
def test_changes_that_keep_the_grammar_are_changes(name: str) -> None:
    """Most inputs that are made of one that is right are neither that nor another kind's."""
    of = file_seeds if name in FILE_TARGETS else far_seeds if name in FAR_TARGETS else seeds
    inputs, random, made = of(name)[:6], Random(7), set()
    for start in (*inputs,) * (48 // len(inputs)):
        with suppress(ValueError, RecursionError):  # some are of no grammar; the command changes their bytes
            made.add(MUTATORS[name](start, start, random))
    assert len(made - {*inputs}) >= 8


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python 3.14 goes by the stack, which has room for it")
def test_a_line_that_is_nested_too_deeply_is_a_sentence() -> None:
    """It ended the thread that reads a feed, in silence."""
    with pytest.raises(UserError, match="nested too deeply"):
        LiveRecording().take(b'{"vramtui_recording":1,"more":' + b"[" * 200_000 + b"]" * 200_000 + b"}")


def test_the_command_knows_every_target() -> None:
    assert set(NAMES) == {*TARGETS, *FAR_TARGETS, *FILE_TARGETS}
    assert set(MUTATORS) <= set(NAMES)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_names_with_escape_sequences(hostile: bytes) -> None:
    TARGETS["names"](hostile)
    TARGETS["nvidia-smi"](CUT.join((hostile, hostile, b"\x09")))


def test_every_text_of_a_recording_is_shown_as_text_only(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    _, hostile = seeds("recordings")
    recordings(hostile)
    path = tmp_path / "hostile.jsonl"
    path.write_bytes(hostile)
    ps(replay=path)
    shown("".join(capsys.readouterr()))


@pytest.mark.parametrize("text", ["\x1b[2J", "a\rb", "\x9b31m", "tab\there", "right \u202eto left", "line\u2028end"])
def test_the_check_itself_sees_what_a_terminal_would_obey(text: str) -> None:
    with pytest.raises(AssertionError, match="reaches the terminal"):
        shown(text)


def test_a_change_is_one_of_its_values_too() -> None:
    """The fuzz command makes millions of these: each differs from the input, and most are still JSON."""
    data = b'{"a": 1, "b": {"c": [1, 2, {"d": null}]}}'
    changed = [mutated(data, data, Random(number)) for number in range(200)]
    assert sum(one != data for one in changed) > 150
    assert sum(_is_json(one) for one in changed) > 60
    assert all(len(one) <= LARGEST for one in changed)


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except ValueError:
        return False
    return True
