import sys
from pathlib import Path

import pytest
from hypothesis import given, seed

from tests.commands import invoke
from tests.fuzz.inputs import near
from tests.fuzz.targets import CORPUS, EVERY, SEEDS, seeds, settings_of, shown
from tests.properties import examples
from tests.tables import for_each
from vramtui.core.base.errors import UserError
from vramtui.records.recording.files import LiveRecording

EXAMPLES = 60


@pytest.mark.parametrize("name", EVERY)
def test_broken_input_keeps_every_promise(name: str) -> None:
    seed(20)(settings_of(examples(EXAMPLES))(given(near(name, seeds(name)))(EVERY[name])))()


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*/*")), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_was_found_stays_found(path: Path) -> None:
    EVERY[path.parent.name](path.read_bytes())


@pytest.mark.slow
@for_each(EVERY)
def test_what_is_right_keeps_every_promise(name: str) -> None:
    for data in seeds(name):
        EVERY[name](data)


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python 3.14 goes by the stack, which has room for it")
def test_a_line_that_is_nested_too_deeply_is_a_sentence() -> None:
    """It ended the thread that reads a feed, in silence."""
    with pytest.raises(UserError, match="nested too deeply"):
        LiveRecording().take(b'{"vramtui_recording":1,"more":' + b"[" * 200_000 + b"]" * 200_000 + b"}")


def test_every_text_of_a_recording_is_shown_as_text_only(tmp_path: Path) -> None:
    path = tmp_path / "hostile.jsonl"
    path.write_bytes((SEEDS / "recordings" / "hostile").read_bytes())
    done = invoke("ps", "--replay", str(path))
    assert done.exit_code == 0
    shown(done.output)
