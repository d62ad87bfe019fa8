import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.timeout(900)]  # each starts several pytests

MODELS = """
import pytest

def build(kind, n):
    from torch import nn  # here, so that a pytest that only collects loads no torch

    if kind == "mlp":
        return nn.Sequential(nn.Linear(128, 64 * n), nn.GELU(), nn.Linear(64 * n, 10)), (32, 128)
    layer = nn.TransformerEncoderLayer(32 * n, 2, 64, batch_first=True)
    return nn.Sequential(layer, nn.Flatten(), nn.Linear(512 * n, 10)), (2, 16, 32 * n)

CASES = [("mlp", 16), ("transformer", 4)]

@pytest.fixture
def batches():
    return 3

@pytest.mark.vram(peak="1 KiB", device="A100-80GB")
@pytest.mark.parametrize(("kind", "n"), CASES)
def test_step(kind, n, batches):
    import torch

    model, shape = build(kind, n)
    model.to("cuda")
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(batches):
        x = torch.randn(shape, device="cuda")
        loss = torch.nn.functional.cross_entropy(model(x), torch.zeros(shape[0], dtype=torch.long, device="cuda"))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""
ASKED = """
import pytest
import torch

@pytest.mark.vram(peak="1 MiB")
def test_too_much():
    torch.empty(1 << 20, device="cuda")

@pytest.mark.vram(peak="1 GiB")
def test_enough():
    kept = torch.empty(1 << 20, device="cuda")
    assert kept.is_cuda

@pytest.mark.vram(peak="1 GiB", memory="1 MiB")
def test_out_of_memory():
    torch.empty(1 << 30, device="cuda")

@pytest.mark.vram
def test_no_limit():
    pass

@pytest.mark.vram(peek="1 GiB")
def test_misspelt():
    pass

@pytest.mark.vram(peak="1 GiB")
def test_wrong():
    assert torch.empty(3, device="cuda").shape == (4,)

@pytest.mark.vram(peak="1 GiB")
def test_skipped():
    pytest.skip("not today")

def fill():
    torch.empty(1 << 20, device="cuda")

def test_with_the_fixture(vram):
    result = vram.dry_run(fill, steps=1)
    vram.check(result, peak="4 MiB")
    with pytest.raises(pytest.fail.Exception, match="over the limit"):
        vram.check(result, peak="1 MiB")

def test_ordinary():
    assert not torch.empty(1).is_cuda
"""
LOCAL = """
def test_local(vram):
    size, kept = 1 << 20, []

    def step():
        import torch

        kept.append(torch.empty(size, device="cuda"))

    vram.check(vram.dry_run(step, steps=1), peak="4 MiB")
"""


def run(folder: Path, *options: str, code: int = 0) -> str:
    command = [sys.executable, "-m", "pytest", "-p", "vramtui.pytest_plugin.plugin", "-p", "no:cacheprovider", *options]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended.stdout


def test_a_peak_is_the_same_in_each_run_and_with_xdist(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_models.py").write_text(MODELS)
    sizes = []
    for options in (("-n", "2"), ("-n", "0")):
        printed = run(tmp_path, *options, code=1)
        assert "2 failed" in printed
        assert printed.count("  test_models.py:") >= 2, "the lines of the largest allocations"
        assert "over the limit of 1.00 KiB" in printed
        sizes.append(sorted(re.findall(r"^peak allocated is .* \(([\d,]+) B\)", printed, re.MULTILINE)))
    assert (sizes[0], len(set(sizes[0]))) == (sizes[1], 2)


def test_every_other_outcome(tmp_path: Path) -> None:
    (tmp_path / "test_asked.py").write_text(ASKED)
    printed = run(tmp_path, "-rA", "--strict-markers", code=1)
    assert "5 failed, 3 passed, 1 skipped" in printed
    outcomes = {
        words[1].partition("::")[2]: words[0] for words in map(str.split, printed.splitlines()) if len(words) > 1
    }
    failed = {name for name, outcome in outcomes.items() if outcome == "FAILED"}
    assert failed == {"test_too_much", "test_out_of_memory", "test_no_limit", "test_misspelt", "test_wrong"}
    assert "over the limit of 1.00 MiB" in printed
    assert "vram needs the limit" in printed
    assert "did you mean peak?" in printed


def test_a_function_local_to_a_test_goes_by_cloudpickle(tmp_path: Path) -> None:
    (tmp_path / "test_local.py").write_text(LOCAL)
    assert "1 passed" in run(tmp_path, "-n", "0")
    (tmp_path / "conftest.py").write_text("import sys\n\nsys.modules['cloudpickle'] = None\n")
    printed = run(tmp_path, "-n", "0", code=1)
    assert "step cannot be sent to the process of the dry run" in printed
    assert "or install cloudpickle" in printed
    assert "Traceback" not in printed
    assert "client.py" not in printed, "one sentence, without the lines that led to it"
