"""What is patched in modules that a script imports later on: each way to come by them."""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from vramtui.dryrun.fake.device.patches import Patches
from vramtui.probe.import_hook import when_imported

NAME = "imported_later_on"


@pytest.fixture
def patches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Patches]:
    (tmp_path / f"{NAME}.py").write_text("def launch():\n    return 'its own'\nend = launch\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    made = Patches()

    when_imported(NAME, lambda module: made.set(module, "launch", lambda: "ours"))
    when_imported(NAME, lambda module: made.set(module, "end", lambda: "ours"))
    yield made
    made.close()
    sys.modules.pop(NAME, None)


def launched() -> str:
    module = importlib.import_module(NAME)
    assert module.end() == module.launch()
    return str(module.launch())


def test_a_module_is_patched_as_it_is_imported(patches: Patches) -> None:
    assert launched() == "ours"
    patches.close()
    assert launched() == "its own"


@pytest.mark.usefixtures("patches")
def test_who_only_asks_whether_it_is_there_does_not_use_the_patch_up() -> None:
    assert importlib.util.find_spec(NAME) is not None
    assert launched() == "ours"
