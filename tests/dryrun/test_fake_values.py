"""What a trace with fake tensors allocates where values decide."""

from pathlib import Path

import pytest

from tests.dryrun.fake.test_scripts import traced
from tests.dryrun.test_cuda_values import BEFORE, HEALTHY, JOBS, MIB, SIZES

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("warm_children")]


@pytest.mark.parametrize("number", [1, 48])
@pytest.mark.parametrize("kind", JOBS)
def test_work_that_an_unknown_mask_guards_is_done_and_bounded(tmp_path: Path, kind: str, number: int) -> None:
    result = traced(tmp_path, BEFORE.format(number=number) + JOBS[kind])
    assert result.peak_allocated >= number * MIB
    assert result.bounded
    assert any(sentence.startswith("bounded") or "loop" in sentence for sentence in result.warnings)


@pytest.mark.parametrize("number", [4, 22])
def test_checks_of_numbers_hold_and_are_not_bounded(tmp_path: Path, number: int) -> None:
    result = traced(tmp_path, HEALTHY.format(number=number))
    assert result.peak_allocated < 256 * MIB
    assert not result.bounded


@pytest.mark.parametrize("kind", SIZES)
def test_sizes_of_known_numbers_are_the_host_s(tmp_path: Path, kind: str) -> None:
    result = traced(tmp_path, "import torch\n" + SIZES[kind].format(n=3) + "torch.zeros(n, 1 << 18, device='cuda')\n")
    assert result.peak_allocated == pytest.approx(13 * MIB, abs=4 * MIB)
    assert not result.bounded
