from pathlib import Path

import pytest

from vramtui.cli.doctor import torch

NAMES = ("json", "runpy", "torch", "pathlib", "importlib", "msgspec", "sitecustomize", "vramtui", "encodings", "typing")


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder, ran = tmp_path / "untrusted", tmp_path / "ran"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text(f"open({str(ran)!r}, 'a').write({name!r})\n")
    monkeypatch.chdir(folder)
    return ran


@pytest.mark.torch
def test_looking_for_torch(trap: Path) -> None:
    torch()
    assert not trap.exists()
