"""A few hundred broken inputs for everything that others write; benchmarks/fuzz.py goes on for as long as it is let."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, seed, settings

from benchmarks.fuzz_inputs import near
from benchmarks.fuzz_targets import CUT, HOSTILE, TARGETS, recordings, seeds, shown
from vramtui.cli.ps import ps

EXAMPLES = 60


@pytest.mark.parametrize("name", TARGETS)
def test_broken_input_keeps_every_promise(name: str) -> None:
    quiet = settings(
        max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck), derandomize=False
    )
    seed(20)(quiet(given(near(seeds(name)))(TARGETS[name])))()


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_right_is_taken(name: str) -> None:
    for data in seeds(name):
        TARGETS[name](data)


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
