"""Nothing that stands in the current folder is imported by what the program starts."""

import contextlib
from pathlib import Path

import pytest

from vramtui.cli.doctor.machine import torch
from vramtui.core.base.errors import UserError
from vramtui.estimators.lab import runner
from vramtui.estimators.lab.catalogue import EXPERIMENTS

NAMES = ("json", "runpy", "torch", "pathlib", "importlib", "msgspec", "sitecustomize", "vramtui", "encodings", "typing")


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder that is full of modules; the file that is there when one was run."""
    folder, ran = tmp_path / "untrusted", tmp_path / "ran"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text(f"open({str(ran)!r}, 'a').write({name!r})\n")
    monkeypatch.chdir(folder)
    return ran


@pytest.mark.torch
def test_measuring_on_a_card(trap: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without torch or without a card the child fails or finds none; it has been started all the same."""
    monkeypatch.setattr(runner, "CARD_FILES", (str(tmp_path),))
    experiment = next(iter(EXPERIMENTS.values()))
    with contextlib.suppress(UserError):
        assert runner.measure(experiment, experiment.runs[0]) is None
    assert not trap.exists()


@pytest.mark.torch
def test_looking_for_torch(trap: Path) -> None:
    torch()
    assert not trap.exists()
