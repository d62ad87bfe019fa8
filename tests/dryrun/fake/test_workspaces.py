"""Which cuBLAS workspaces a release of PyTorch keeps, and what it says of bf16 on older cards."""

import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vramtui.core.estimate.devices import card
from vramtui.dryrun.fake.run import trace
from vramtui.dryrun.result import TraceRequest
from vramtui.estimators.torch_facts.cublas import LARGE_WORKSPACE, WORKSPACE

pytestmark = pytest.mark.torch
NAMES = "grad input weight bias_sizes stride padding dilation transposed output_padding groups output_mask"


class Memory:
    stream = 0

    def __init__(self) -> None:
        self.held = self.peak = 0

    def take(self, size: int, _category: str) -> Any:
        self.held += size
        self.peak = max(self.peak, self.held)
        return SimpleNamespace(size=size)

    def release(self, entry: Any) -> None:
        self.held -= entry.size


@pytest.mark.parametrize("release", [(2, 12), (2, 13), (2, 14), (2, 15)])
@pytest.mark.parametrize(("capability", "size"), [((9, 0), LARGE_WORKSPACE), ((7, 5), WORKSPACE)])
def test_a_workspace_is_kept_up_to_2_14_and_given_back_from_2_15_on(
    release: tuple[int, int], capability: tuple[int, int], size: int
) -> None:
    from vramtui.dryrun.fake.accounting.memory import Workspaces  # noqa: PLC0415 - it imports torch

    memory: Any = Memory()
    workspaces = Workspaces(memory, capability, release)
    for _ in range(3):
        workspaces.cublas()
        workspaces.cublaslt()
    assert memory.held == (size if release < (2, 15) else 0)
    assert memory.peak == size
    workspaces.clear()
    assert memory.held == 0


@pytest.mark.parametrize("release", [(2, 14), (2, 15)])
def test_a_native_convolution_goes_backward_with_result_columns_and_workspace_at_once(release: tuple[int, int]) -> None:
    """As the requests of 2.15's CUDA build have it, of ResNet-50 without cuDNN: 12.4 MiB more at its peak."""
    import torch  # noqa: PLC0415 - only where it is installed

    from vramtui.dryrun.fake.accounting.memory import Workspaces  # noqa: PLC0415 - it imports torch
    from vramtui.dryrun.fake.kernels.convolution import convolution_backward  # noqa: PLC0415 - it imports torch

    image, weight = torch.empty(2, 8, 32, 32), torch.empty(8, 8, 3, 3)
    for wanted, results in (((True, True), [image, weight]), ((False, True), [weight]), ((True, False), [image])):
        memory: Any = Memory()
        memory.workspaces = Workspaces(memory, (9, 0), release)
        args = (image, image, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [*wanted, False])
        call: Any = SimpleNamespace(
            args=args,
            argument=dict(zip(NAMES.split(), args, strict=True)).get,
            untracked=lambda wanted=wanted: (image if wanted[0] else None, weight if wanted[1] else None, None),
            memory=memory,
            copy=lambda *_: None,
            take=lambda value, memory=memory: memory.take(value.nbytes, "gradients"),
            scratch=lambda size, memory=memory: memory.take(size, "workspaces"),
            drop=lambda *held, memory=memory: [memory.release(one) for one in held],
        )
        with torch.backends.cudnn.flags(enabled=False):
            convolution_backward(call)
        columns = 8 * 3 * 3 * 32 * 32 * 4
        gradients = sum(one.nbytes for one in results)
        assert memory.peak == gradients + columns + LARGE_WORKSPACE
        assert memory.held == gradients + (LARGE_WORKSPACE if release < (2, 15) else 0)


@pytest.mark.usefixtures("warm_children")
@pytest.mark.parametrize(("name", "native"), [("T4", False), ("V100", False), ("A100", True)])
def test_bf16_is_what_pytorch_says_of_a_card(tmp_path: Path, name: str, native: bool) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent(f"""
        import torch
        assert torch.cuda.is_bf16_supported()
        assert torch.cuda.is_bf16_supported(including_emulation=False) is {native}
        assert torch.cuda.is_tf32_supported() is {native}
        with torch.autocast("cuda", dtype=torch.bfloat16):
            product = torch.ones(64, 64, device="cuda") @ torch.ones(64, 64, device="cuda")
        assert product.dtype is torch.bfloat16
        """),
        encoding="utf-8",
    )
    assert trace(TraceRequest(path=str(script), device=card(name))).peak_allocated > WORKSPACE


CAUGHT = """
import torch
torch.cuda.memory._set_allocator_settings("expandable_segments:True")
print(torch.cuda.mem_get_info()[0])
try:
    torch.empty(200 << 30, dtype=torch.uint8, device="cuda")
except Exception:
    pass
held = torch.ones(4, device="cuda")
"""


@pytest.mark.usefixtures("warm_children")
def test_an_error_that_the_code_caught_is_told(tmp_path: Path) -> None:
    (tmp_path / "caught.py").write_text(CAUGHT, encoding="utf-8")
    result = trace(TraceRequest(path=str(tmp_path / "caught.py"), device=card("H100")))
    assert result.out_of_memory is None
    assert result.asked == 200 << 30
    (note,) = [one for one in result.warnings if "caught" in one]
    assert "out-of-memory error at " in note
    assert "caught.py:6, which asked for 200.0 GiB" in note
