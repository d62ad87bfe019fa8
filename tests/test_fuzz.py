"""Some broken inputs for everything that others write, and all that `python -m tests.fuzz` ever found."""

import json
import sys
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, seed
from typer.testing import CliRunner

from tests.fuzz.changes import with_other_values, with_other_words
from tests.fuzz.every import CORPUS, EVERY, inputs_of, settings_of
from tests.fuzz.inputs import BINARY, near
from tests.fuzz.targets import CUT, HOSTILE, PROBE_SEEDS, TARGETS, recordings, seeds, shown
from tests.properties import examples
from vramtui.cli.main import program
from vramtui.core.base.errors import UserError
from vramtui.records.recording.decoder import LiveRecording
from vramtui.sources.probe_listener import decode_datagram

EXAMPLES = 60


@pytest.mark.parametrize("name", EVERY)
def test_broken_input_keeps_every_promise(name: str) -> None:
    seed(20)(settings_of(examples(EXAMPLES))(given(near(name, inputs_of(name)))(EVERY[name])))()


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*/*")), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_was_found_stays_found(path: Path) -> None:
    EVERY[path.parent.name](path.read_bytes())


@pytest.mark.parametrize("name", EVERY)
def test_what_is_right_keeps_every_promise(name: str) -> None:
    for data in inputs_of(name):
        EVERY[name](data)


def test_the_messages_that_are_changed_are_messages() -> None:
    assert all(decode_datagram(data) is not None for data in PROBE_SEEDS)


@pytest.mark.parametrize("name", BINARY)
def test_changes_that_keep_the_grammar_are_changes(name: str) -> None:
    """Most inputs that are made of one that is right are neither that nor another kind's."""
    inputs, random, made = inputs_of(name)[:6], Random(7), set()
    for start in (*inputs,) * (48 // len(inputs)):
        with suppress(ValueError):  # a database whose tables are gone
            made.add(BINARY[name](start, random))
    assert len(made - {*inputs}) >= 8


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python 3.14 goes by the stack, which has room for it")
def test_a_line_that_is_nested_too_deeply_is_a_sentence() -> None:
    """It ended the thread that reads a feed, in silence."""
    with pytest.raises(UserError, match="nested too deeply"):
        LiveRecording().take(b'{"vramtui_recording":1,"more":' + b"[" * 200_000 + b"]" * 200_000 + b"}")


@pytest.mark.parametrize("hostile", HOSTILE)
def test_names_with_escape_sequences(hostile: bytes) -> None:
    TARGETS["names"](hostile)
    TARGETS["nvidia-smi"](CUT.join((hostile, hostile, b"\x09")))


def test_every_text_of_a_recording_is_shown_as_text_only(tmp_path: Path) -> None:
    _, hostile = seeds("recordings")
    recordings(hostile)
    path = tmp_path / "hostile.jsonl"
    path.write_bytes(hostile)
    done = CliRunner().invoke(program(["ps"]), ["ps", "--replay", str(path)])
    assert done.exit_code == 0
    shown(done.output)


@pytest.mark.parametrize("text", ["\x1b[2J", "a\rb", "\x9b31m", "tab\there", "right \u202eto left", "line\u2028end"])
def test_the_check_itself_sees_what_a_terminal_would_obey(text: str) -> None:
    with pytest.raises(AssertionError, match="reaches the terminal"):
        shown(text)


@pytest.mark.parametrize("data", [b'{"a": 1, "b": {"c": [1, 2, {"d": null}]}}', b'{"a": 1}\n{"b": [2, 3]}'])
def test_other_values_are_still_json(data: bytes) -> None:
    changed = {with_other_values(data, Random(number)) for number in range(200)}
    assert len(changed) > 100
    for text in changed:
        assert all(json.loads(line) is not NotImplemented for line in text.splitlines())


def test_other_words_keep_most_of_a_text() -> None:
    data = b"python train.py --model llama --batch 4"
    changed = {with_other_words(data, b"tune --rank 8", Random(number)) for number in range(200)}
    assert len(changed) > 150
    assert sum(b"train.py" in text for text in changed) > 100
