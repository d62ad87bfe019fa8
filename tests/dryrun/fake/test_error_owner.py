"""An error in a dry run: the code is blamed only for what also fails in a real run."""

from pathlib import Path

import pytest

from tests.dryrun.fake.test_scripts import traced
from vramtui.dryrun.fake.run import TraceFailedError

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("warm_children")]
CODE, TRACE = "the code failed at", "the dry run stopped at"
CARDS = "asks for GPU 2 (cuda:1), and fake tensors simulate one: it needs PyTorch's CUDA build and --gpu 2xA100"
SPARSE = "makes a sparse tensor, which cannot be followed on fake tensors: it needs PyTorch's CUDA build"


@pytest.mark.parametrize(
    ("line", "begins"),
    [
        ("torch.nn.Linear(8, 8).cuda()(torch.randn(2, 8))", CODE),  # two devices
        ('torch.nn.Linear(8, 8).cuda()(torch.randn(2, 9, device="cuda"))', CODE),  # two shapes
        ('{}["key"]', CODE),
        ("import a_module_that_is_not_there", CODE),
        ('open("a file that is not there")', CODE),
        ("torch.nn.functional.math.no_such_name", CODE),  # a module without that name
        ('__import__("numpy").no_such_name', CODE),  # what NumPy's own __getattr__ says so of
        ('assert torch.__version__.startswith("1.")', CODE),  # no tensor is in it
        ('__import__("transformers").AutoConfig.for_model("none")', CODE),  # a library's word that no tensor is in
        ("x = torch.ones(4).cuda(); x.masked_scatter_(x.to(torch.uint8), x)", CODE),  # refused on every device
        ("x = torch.ones(4).cuda(); x.masked_fill_(x.to(torch.uint8), 0)", CODE),
        ("torch.nn.functional.interpolate(torch.randn(1, 1, 8, 8).cuda())", CODE),  # refused by PyTorch's own Python
        ("torch.nn.Conv1d(3, 4, 3).cuda()(torch.randn(4, 3, 8, 8).cuda())", CODE),  # by C++ before the operator runs
        ("torch.nn.functional.cross_entropy(torch.randn(4, 5).cuda(), torch.zeros(7).long().cuda())", CODE),
        ("torch.randn(4, 4).cuda() @ torch.randn(4, 4).cuda().half()", CODE),  # which PyTorch's shapes take
        ('torch.zeros(4, device="cuda:1")', CARDS),
        ("torch.sparse_coo_tensor(torch.zeros(2, 99999).long(), torch.ones(99999), (4, 4)).to_sparse_csr()", SPARSE),
    ],
)
def test_the_code_is_blamed_for_what_fails_without_a_trace_alone(tmp_path: Path, line: str, begins: str) -> None:
    with pytest.raises(TraceFailedError) as failure:
        traced(tmp_path, f"import torch\n{line}\n")
    assert begins in str(failure.value)
    assert failure.value.beyond_trace is (begins not in {CODE, CARDS})
    assert "script.py:2" in str(failure.value)
    assert "Fake" not in str(failure.value)


def test_an_assertion_about_an_unknown_value_holds_as_in_a_healthy_job(tmp_path: Path) -> None:
    result = traced(tmp_path, 'import torch\nassert torch.randn(99, 99, device="cuda").sum() > 10\n')
    assert result.peak_allocated == 39_424 + 512


@pytest.mark.parametrize(
    ("line", "begins"),
    [
        (
            "while True:\n        x = x[:, :-1]\n        if x.sum() > 0.5: break",
            TRACE,
        ),  # a decoder's word that it stops
        ("while x.sum() < 0.5:\n        x = torch.cat([x, x], 1)", TRACE),
        ("while True:\n        x = x.sigmoid()\n        if x.mean().item() > 2: return x", TRACE),
        ("x = x.sigmoid()", CODE),
        ("while x.shape[1] > 4:\n        x = x[:, :-1]", CODE),  # no value in it
    ],
)
def test_the_code_is_not_blamed_for_sizes_that_a_loop_over_unknown_values_has_left(
    tmp_path: Path, line: str, begins: str
) -> None:
    script = f"import torch\ndef decode(x):\n    {line}\n    return x\n"
    script += 'frames = decode(torch.randn(4, 9, device="cuda"))\nframes @ torch.randn(7, 2, device="cuda")\n'
    with pytest.raises(TraceFailedError) as failure:
        traced(tmp_path, script)
    assert begins in str(failure.value)
    assert failure.value.beyond_trace is (begins == TRACE)


def test_what_shapes_alone_refuse_and_the_cpu_takes_is_no_fault_of_the_code() -> None:
    """Bytes for conditions, which PyTorch's shapes of `where` do not take, and its kernels do."""
    torch = pytest.importorskip("torch")
    from vramtui.dryrun.fake.failures import fails_without_a_trace  # noqa: PLC0415 - it imports torch

    where, zeros, error = torch.ops.aten.where.self, torch.zeros(3, device="meta"), RuntimeError("none of the CPU's")
    for condition, fails in ((zeros.to(torch.uint8), False), (zeros, True)):
        assert fails_without_a_trace(where, ((condition, zeros, zeros), {}), error) is fails


def test_a_host_that_a_trace_does_not_reach_is_no_fault_of_the_code(tmp_path: Path) -> None:
    with pytest.raises(
        TraceFailedError, match="asks for a host on the network, and a dry run has no network: URLError"
    ):
        traced(tmp_path, 'import urllib.request\nurllib.request.urlopen("http://weights.invalid/net.pt")\n')


@pytest.mark.parametrize(
    "line",
    [
        "class NVMLError(Exception): pass\nraise NVMLError('Shared Library Not Found')",
        "import subprocess\nsubprocess.run(['nvidia-smi', '-q'], env={'PATH': ''})",
    ],
)
def test_a_driver_that_a_trace_has_not_got_is_no_fault_of_the_code(tmp_path: Path, line: str) -> None:
    with pytest.raises(TraceFailedError, match=r"script\.py:2 asks NVIDIA's driver about its GPUs") as failure:
        traced(tmp_path, f"{line}\n")
    assert failure.value.beyond_trace


READ = """
import torch
def sizes(loss):
    count = {read}
    {line}
def other(loss):
    print(loss.item())
x = torch.randn(70, 9, device="cuda").sum()
other(x)
sizes(x)
"""


@pytest.mark.parametrize("read", ["int(loss.item())", "int(loss.cpu().numpy())", "int(loss.tolist())"])
@pytest.mark.parametrize(
    ("line", "is_code"),
    [
        ('torch.empty(count - 999, device="cuda")', False),
        ("{5: 1}[count]", False),
        ("[][count]", False),
        ("import a_module_that_is_not_there", True),  # whatever was read
    ],
)
def test_what_may_hang_on_a_value_that_was_read_is_not_said_to_be_the_codes(
    tmp_path: Path, line: str, read: str, is_code: bool
) -> None:
    with pytest.raises(TraceFailedError) as failure:
        traced(tmp_path, READ.format(line=line, read=read))
    said = str(failure.value)
    assert (CODE if is_code else TRACE) in said
    assert ("script.py:4, which was replaced by a constant" in said) is not is_code
