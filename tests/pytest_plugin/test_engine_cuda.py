"""`@pytest.mark.vram(engine="cuda")`: a test by itself on a simulated GPU. Its figures need PyTorch's CUDA build."""

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import os
import pytest

@pytest.mark.vram(peak="1 MiB", engine="cuda")
def test_without_cuda():
    assert os.environ["VRAMTUI_CARD"].startswith("NVIDIA H100;")

@pytest.mark.vram(engine="cuda")
def test_without_a_limit():
    raise AssertionError

@pytest.mark.vram(peak="1 MiB", engine="cuda")
def test_with_a_fault():
    apples = 2
    assert apples == 3

@pytest.mark.vram(peak="1 MiB", engine="cuda")
def test_for_another_card():
    pytest.skip("wants two cards")
"""


@pytest.mark.slow
@pytest.mark.parametrize(("cuda", "sentence"), [
    ("'13.0'", "the job never used CUDA"),
    ("None", "has torch 2.13.0, which is not built for CUDA; engine cuda needs"),
])  # fmt: skip
def test_a_test_that_tells_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cuda: str, sentence: str) -> None:
    """By what stands in for a build of PyTorch, whichever is installed here."""
    torch = tmp_path / "torch"
    torch.mkdir()
    (torch / "__init__.py").touch()
    (torch / "version.py").write_text(f"__version__ = '2.13.0'\ncuda: Optional[str] = {cuda}\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "test_memory.py").write_text(TESTS)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "--rootdir", ".", "-p", "no:cacheprovider", "test_memory.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert sentence in ran.stdout
    assert '"schema"' not in ran.stdout
    assert "vram needs the limit" in ran.stdout
    if cuda == "None":
        assert "4 failed" in ran.stdout
        return
    assert "3 failed, 1 skipped" in ran.stdout
    assert "E       assert 2 == 3" in ran.stdout
    assert "test_memory.py:20: wants two cards" in ran.stdout
