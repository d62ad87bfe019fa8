"""PyTorch's facts against answers of the real CUDA build, and both estimators against the facts."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import releases
from tests.tables import for_each, rows
from vramtui.core.estimate.devices import CARDS, card
from vramtui.estimators.torch_facts import convolutions, sdpa_backend
from vramtui.estimators.torch_facts.allocator_sizes import MIN_BLOCK, rounded, segment_bytes, tail
from vramtui.estimators.torch_facts.cards import CardLimits, card_limits
from vramtui.estimators.torch_facts.cublas import workspace_bytes
from vramtui.estimators.torch_facts.reduction import column_sum_scratch

GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "golden" / "torch_facts.json").read_text(encoding="utf-8")
)
LIMITS = [card_limits(device) for device in CARDS.values()]


def _rows(name: str) -> list[dict[str, Any]]:
    return [dict(zip(GOLDEN[name]["columns"], row, strict=True)) for row in GOLDEN[name]["rows"]]


def _capability(text: str) -> tuple[int, int]:
    major, minor = text.split(".")
    return int(major), int(minor)


def _call(row: dict[str, Any]) -> sdpa_backend.AttentionCall:
    return sdpa_backend.AttentionCall(
        dtype=row["dtype"], query=tuple(row["query"]), key=tuple(row["key"]), value=tuple(row["value"]),
        masked=row["mask"] is not None, trained_mask=row["mask"] == "trained", dropout=float(row["dropout"]),
        causal=bool(row["causal"]), grouped=bool(row["grouped"]), training=bool(row["training"]),
        deterministic=bool(row["deterministic"]),
    )  # fmt: skip


def test_attention_kernels_are_those_that_the_cuda_build_takes() -> None:
    rows = _rows("sdpa")
    assert len(rows) == 720
    wrong = [
        row for row in rows if sdpa_backend.choose_backend(_call(row), _capability(row["capability"])) != row["backend"]
    ]
    assert wrong == []
    # As the CUDA builds of 2.14 and 2.15 answered.
    rows = [row for row in _rows("sdpa") if row["capability"] == "9.0"]
    old, new = (
        [sdpa_backend.choose_backend(msgspec.structs.replace(_call(row), release=release), (9, 0)) for row in rows]
        for release in ((2, 13), (2, 14))
    )
    assert sorted(pair for pair in zip(old, new, strict=True) if pair[0] != pair[1]) == [
        *[("cudnn", "flash")] * 2,
        *[("math", "efficient")] * 3,
    ]
    wide = sdpa_backend.AttentionCall(
        dtype="bf16", query=(2, 4, 64, 256), key=(2, 4, 64, 256), value=(2, 4, 64, 256), training=True
    )
    assert sdpa_backend.choose_backend(msgspec.structs.replace(wide, release=(2, 15)), (10, 0)) == "cudnn"
    assert sdpa_backend.choose_backend(wide, (10, 0)) == "flash"
    # Bytes beside the gradients, of one sequence of so many tokens; a mask changes nothing.
    rows = GOLDEN["efficient_backward"]["rows"]
    assert len(rows) > 150
    for capability, kind, heads, tokens, width, dropout, true in rows:
        major, minor = map(int, capability.split("."))
        called = sdpa_backend.EfficientKernel(kind == "half", (major, minor), bool(dropout))
        found = sdpa_backend.efficient_backward_bytes(heads, tokens, tokens, (width, width), called)
        assert found == true, (capability, kind, heads, tokens, width, dropout)


def test_a_convolution_has_the_workspaces_of_the_cudnn_that_its_pytorch_brings() -> None:
    assert [convolutions.cudnn_of(release) for release in ((2, 12), (2, 13), (2, 14), (2, 15))] == [
        (9, 20), (9, 20), (9, 24), (9, 26),
    ]  # fmt: skip

    def asked(release: tuple[int, int]) -> list[tuple[int, bool] | None]:
        form = convolutions.ConvolutionForm(dtype="bfloat16", window=(1, 1), cudnn=convolutions.cudnn_of(release))
        shapes = (2, 64, 32, 32), (64, 64, 1, 1), (2, 64, 32, 32)
        convolved = convolutions.convolved_of(shapes, 2, 1, transposed=False, form=form, padding=(0, 0))
        return [convolutions.measured_workspace(convolved, at) for at in ("forward", "input", "weight")]

    assert (asked((2, 13)), asked((2, 14))) == ([(524304, True)] * 3, [(0, True), (0, True), (524304, True)])
    assert asked((2, 15)) == [(524304, True), (0, True), (524304, True)]


@for_each([("H100", "h100"), ("A100-80GB", "a100"), ("L4", "l4"), ("RTX4060", "l4"), ("L40S", "rtx4090"), ("T4", "t4")])
def test_a_card_has_the_convolutions_of_the_measured_one_of_its_capability(name: str, measured: str) -> None:
    limits = card_limits(card(name))
    assert convolutions.measured_card(limits.capability, limits.multiprocessors) == measured


@for_each(rows(__file__, "each_card_has_its_own"))
def test_each_card_has_its_own_workspaces(name: convolutions.MeasuredCard, asked: tuple[int, int, int]) -> None:
    """The second layer of PyTorch's DCGAN in fp32."""
    form = convolutions.ConvolutionForm(card=name, dtype="float32", window=(4, 4), stride=(2, 2))
    shapes = (64, 64, 32, 32), (128, 64, 4, 4), (64, 128, 16, 16)
    convolved = convolutions.convolved_of(shapes, 4, 1, transposed=False, form=form, padding=(1, 1))
    directions: tuple[convolutions.Direction, ...] = ("forward", "input", "weight")
    assert [convolutions.measured_workspace(convolved, at) for at in directions] == [(one, True) for one in asked]


def test_no_kernel_that_was_tried_asks_for_more_than_the_bound() -> None:
    shares = []
    for line in convolutions.table_of("h100", (9, 20)):
        fields = {name: tuple(one) if isinstance(one, list) else one for name, one in json.loads(line).items()}
        ones = dict.fromkeys(("stride", "dilation"), (1,) * len(fields["window"]))
        for one in convolutions.measured_of(convolutions.ConvolutionForm(card="h100", **(ones | fields))):
            shares += [size / (convolutions.most_tried(one.convolved, at) or 0) for at, size in one.tried.items()]
    assert (len(shares), round(max(shares), 2)) == (3 * 1518, 0.98)


@for_each(_rows("cublas"))
def test_the_cublas_workspace_is_the_one_the_cuda_build_takes(row: dict[str, Any]) -> None:
    assert workspace_bytes(_capability(row["capability"]), row["config"]) == row["bytes"]


def test_the_environment_decides_the_workspace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    assert workspace_bytes((9, 0)) == 128 * 1024
    for name, count in (("RTX3090", 82), ("A6000", 84), ("RTX5090", 170), ("RTX5080", 84), ("T4", 40)):
        assert card_limits(CARDS[name]).multiprocessors == count
    assert all(limits.multiprocessors * limits.threads for limits in LIMITS)
    assert [convolutions.measured_card(capability, 82) for capability in ((8, 6), (7, 0), (12, 0))] == [None] * 3


@given(st.integers(0, 1 << 36))
def test_a_block_is_a_multiple_that_its_segment_holds(size: int) -> None:
    block = rounded(size)
    assert block % MIN_BLOCK == 0
    assert size <= block < size + MIN_BLOCK
    assert block + tail(size) <= segment_bytes(block)


@pytest.mark.torch
@given(st.integers(1, 5000), st.integers(1, 3000), st.sampled_from(LIMITS))
def test_the_tracer_sums_columns_as_the_formula_says(rows: int, columns: int, limits: CardLimits) -> None:
    torch = pytest.importorskip("torch")
    from vramtui.dryrun.fake.kernels.reductions import plan  # noqa: PLC0415 - it imports torch

    needs = plan(
        torch.empty(rows, columns, device="meta"), (0,), torch.empty(columns, device="meta"), limits, accumulator=4
    )
    assert needs.allocated == column_sum_scratch(rows, columns, limits)


@pytest.mark.torch
def test_the_tracer_takes_the_kernel_that_the_facts_name() -> None:
    torch = pytest.importorskip("torch")
    from vramtui.dryrun.fake.kernels.attention import choose  # noqa: PLC0415 - it imports torch

    types = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "fp64": torch.float64}
    for row in (row for row in _rows("sdpa") if not row["deterministic"]):
        query, key, value = (
            torch.empty(row[name], device="meta", dtype=types[row["dtype"]], requires_grad=bool(row["training"]))
            for name in ("query", "key", "value")
        )
        mask = None
        if row["mask"] is not None:
            mask = torch.empty(1, device="meta", requires_grad=row["mask"] == "trained")
        how = {"dropout": row["dropout"], "causal": bool(row["causal"]), "grouped": bool(row["grouped"])}
        chosen = choose((query, key, value, mask), _capability(row["capability"]), **how)
        assert chosen == row["backend"], row


RECORDED = json.loads(releases.RECORDED.read_text(encoding="utf-8"))


@pytest.mark.parametrize("version", RECORDED)
def test_each_rule_holds_for_the_recorded_answers(version: str) -> None:
    answers = RECORDED[version]
    assert answers["torch"] == version
    assert [one for one in releases.rules(answers, cudnn=answers["cudnn"]) if one[2] != one[3]] == []


def test_a_rule_that_a_release_breaks_is_named_with_its_file() -> None:
    good = RECORDED["2.13.0+cu130"]
    newer = [one for one in releases.rules(good | {"torch": "2.15.0"}, cudnn=True) if one[2] != one[3]]
    assert ("workspace, kept", "torch_facts/cublas.py", 0, 32 << 20) in newer
    assert sum(file == "torch_facts/sdpa_backend.py" for _, file, _, _ in newer) == 5
    older = [one for one in releases.rules(good | {"torch": "2.12.1"}, cudnn=True) if one[2] != one[3]]
    assert ("free block of two of one size", "torch_facts/allocator_sizes.py", "oldest", "lowest") in older
