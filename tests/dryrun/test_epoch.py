"""The rest of an epoch, made short: its largest batch, and what runs behind the loop over its batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from tests.dryrun.test_cuda_values import PYTHON, dry_run
from tests.tables import rows
from vramtui.core.base.units import GIB
from vramtui.core.estimate.devices import card
from vramtui.dryrun.fake.run import trace
from vramtui.dryrun.result import UNSEEN, DryRun, TraceRequest
from vramtui.probe.epoch import BATCHES, Epoch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader, IterableDataset  # noqa: E402 - torch may not be there
from torch.utils.data.dataloader import _BaseDataLoaderIter  # noqa: E402 - as above

pytestmark = pytest.mark.torch
JOB, RANKS, STEPS, EVERY, LOOPS, LEAVES = (str(text) for _, text in rows(__file__, "jobs"))
LATER: dict[str, dict[str, Any]] = {
    "the longest comes late": {"longest": 4096, "late": 33},
    "an evaluation has larger batches": {"larger": 24, "longest": 600, "late": 3},
    "results are kept until the next one": {"larger": 1, "longest": 400, "late": 21},
    "each epoch has a DataLoader": {"then": "train = load([one.repeat(400 << epoch) for one in rows], 2)"},
}


def job(**how: Any) -> str:
    return JOB.format(**{"longest": 8, "late": 0, "larger": 2, "epochs": 4, "then": "pass"} | how)


def traced(folder: Path, code: str, *, steps: int = 3, memory: int = 0, keep_files: bool = False) -> DryRun:
    (path := folder / "job.py").write_text(code, encoding="utf-8")
    device = replace(card("A100"), total_memory=memory or card("A100").total_memory)
    return trace(TraceRequest(path=str(path), device=device, steps=steps, keep_files=keep_files))


@pytest.mark.usefixtures("warm_children")
@pytest.mark.parametrize("kind", LATER)
def test_what_an_epoch_takes_beyond_its_first_steps_is_in_the_result(tmp_path: Path, kind: str) -> None:
    seen, whole = traced(tmp_path, job(**LATER[kind])), traced(tmp_path, job(**LATER[kind]), steps=1 << 30)
    assert seen.peak_allocated == pytest.approx(whole.peak_allocated, rel=0.005)
    assert " epochs, made short (" in seen.warnings[-1]
    assert (seen.steps, seen.cut_short, seen.bounded) == (3, True, False)


@pytest.mark.skipif(not PYTHON, reason="VRAMTUI_CUDA_PYTHON is not set")
@pytest.mark.parametrize("kind", LATER)
def test_engine_cuda_runs_it_too(tmp_path: Path, kind: str) -> None:
    before, gpu = (RANKS, "2xH100") if kind == "the longest comes late" else ("", "H100")
    found = dry_run(tmp_path, before + job(**LATER[kind]), gpu=gpu)
    whole = dry_run(tmp_path, before + job(**LATER[kind]), gpu=gpu, steps=0)
    assert found["peak_allocated"] == pytest.approx(whole["peak_allocated"], rel=0.005)
    assert (found["steps"], found["exit_code"], found["bounded"]) == (3, 0, False)


@pytest.mark.skipif(not PYTHON, reason="VRAMTUI_CUDA_PYTHON is not set")
@pytest.mark.parametrize("engine", ["cuda", "fake"])
def test_a_job_without_a_dataloader_runs_on_too(tmp_path: Path, engine: str) -> None:
    found = dry_run(tmp_path, STEPS.format(times=1 << 14), engine, gpu="H100")
    assert (found["peak_allocated"] > GIB, found["peak_step"], found["cut_short"]) == (True, 151, False)
    assert found["warnings"][-1].startswith("all its 200 steps took ")


@pytest.mark.usefixtures("warm_children")
@pytest.mark.parametrize("engine", ["fake", "cuda"] if PYTHON else ["fake"])
@pytest.mark.parametrize(
    "every", ["SHOW_EVERY", "args.val_steps", 'args.opt["eval_interval"]', "print_freq", "save_every"]
)
def test_what_a_loop_does_at_intervals_comes_at_once_and_not_for_long(tmp_path: Path, engine: str, every: str) -> None:
    seen = traced(tmp_path, EVERY.format(every)) if engine == "fake" else None
    found = dry_run(tmp_path, EVERY.format(every), gpu="A100") if seen is None else to_builtins(seen)
    times = (found["peak_allocated"] - (16 << 20)) >> 22
    assert (0 < times < 12, "and what comes at intervals" in found["after"]) == (every != "save_every",) * 2


@pytest.mark.usefixtures("warm_children")
@pytest.mark.parametrize("engine", ["fake", "cuda"] if PYTHON else ["fake"])
@pytest.mark.parametrize("where", ["after_epoch", "after_train", "at_end", "fails"])
def test_a_job_goes_on_behind_its_loops(tmp_path: Path, engine: str, where: str) -> None:
    sizes: dict[str, Any] = {"after_epoch": 1, "after_train": 1, "at_end": 1, "fails": ""} | {where: 3_000}
    code = LOOPS.format(
        **sizes | ({"fails": "torch.empty(3_000 << 20, device='cuda')\nadam.none"} if where == "fails" else {})
    )
    seen = traced(tmp_path, code) if engine == "fake" else None
    found = dry_run(tmp_path, code, gpu="H100") if seen is None else to_builtins(seen)
    assert (found["peak_allocated"] > GIB, found["after"].endswith(" steps and what follows ran")) == (
        True,
        where != "fails",
    )


@pytest.mark.skipif(not PYTHON, reason="VRAMTUI_CUDA_PYTHON is not set")
def test_runs_share_compiled_code_but_not_what_was_chosen_by_trying(tmp_path: Path) -> None:
    found = dry_run(tmp_path, LEAVES + job(then="net(batch.cuda().repeat(1, 64 << 10 * (left == ['code'])))"))
    assert found["peak_allocated"] > GIB


@pytest.mark.usefixtures("warm_children")
def test_the_rest_of_an_epoch_may_not_fit_take_no_more_keep_results_or_fail(tmp_path: Path) -> None:
    full = traced(tmp_path, job(larger=24, longest=4096), memory=3 * GIB // 4)
    assert (full.verdict, full.exit_code) == ("does not fit", 1), full.verdict_line
    alike = traced(tmp_path, job(then="kept = 0"))
    seen = "20 batches, none larger than before, and 12 of 12 batches of other DataLoaders"
    assert alike.after.endswith(f" epochs, made short ({seen}), took no more")
    keeping = traced(tmp_path, job(larger=1, late=99).replace("rows[:24]", "rows * 9"))
    assert "the 327 that did not run keep up to" in keeping.warnings[-1]
    assert keeping.bounded
    decided = "pass\n        if net(batch.cuda()).sum() > 0:\n            torch.zeros(9 << 20, device='cuda')"
    either = traced(tmp_path, job(larger=24, longest=600, late=3).replace("adam.zero_grad()", decided))
    assert [high for _, high in either.bounds.values()] == [either.peak_allocated]
    failing = traced(tmp_path, job(late=33, longest=999, then="kept[99]"))
    assert (failing.peak_allocated, failing.after, failing.exit_code) == (alike.peak_allocated, UNSEEN, 0)
    tail = f"{job(epochs=1)}torch.empty(3 << 28, device='cuda')"  # behind the last step, and in no module
    assert traced(tmp_path, tail, steps=1 << 30).peak_allocated > 3 * GIB
    assert traced(tmp_path, tail, keep_files=True).after == UNSEEN


class Counted(IterableDataset):  # type: ignore[type-arg] # of numbers
    def __iter__(self) -> Iterator[int]:
        return iter(range(200))


@pytest.mark.parametrize(
    "how", [{}, {"num_workers": 1}, {"num_workers": 1, "persistent_workers": True}, {"data": Counted()}]
)
def test_a_loop_gives_its_largest_batch_and_ends(monkeypatch: pytest.MonkeyPatch, how: dict[str, Any]) -> None:
    """A batch is as large as its last number; the loop that trains is left in its third pass."""
    epoch = Epoch(torch, lambda: 0, None, is_short=True)
    plain = _BaseDataLoaderIter.__next__
    monkeypatch.setattr(_BaseDataLoaderIter, "__next__", lambda self: epoch.load(plain, self))
    options: dict[str, Any] = {"collate_fn": lambda some: torch.zeros(some[-1] % 101), "batch_size": 2} | how
    data: Any = options.pop("data", range(200))
    train: Any = DataLoader(data, **options)
    other: Any = DataLoader(data, **options)
    next(iter(other))  # before any training, as a first look at validation
    state = type("TrainerState", (), {"__module__": "transformers.trainer_callback", "eval_steps": 500})()
    seen = []
    for _ in range(3):
        for batch in train:
            seen.append(len(batch))
            assert len(seen) < 3 or epoch.goes_on(3) or epoch.is_over()
        seen.append(-sum(1 for _ in other))
    assert seen == [1, 3, 5, 99, -BATCHES - 1, 1, 99, -BATCHES - 1, 1, 99, -2]
    assert (state.eval_steps, epoch.goes_on(99)) == (1, True)
    summary = epoch.summary()
    assert summary is not None
    assert [summary[name] for name in ("length", "is_larger", "others", "others_length")] == [100, True, 33, 100]


@pytest.mark.parametrize("seconds", [9, 0])  # to look for the largest batch
@pytest.mark.parametrize("workers", [0, 2])
def test_a_loop_ends_with_its_last_batch_if_that_has_fewer_samples(
    monkeypatch: pytest.MonkeyPatch, seconds: int, workers: int
) -> None:
    epoch = Epoch(torch, lambda: 0, None, is_short=True)
    plain = _BaseDataLoaderIter.__next__
    monkeypatch.setattr(_BaseDataLoaderIter, "__next__", lambda self: epoch.load(plain, self))
    monkeypatch.setattr("vramtui.probe.epoch.SHORTLY", seconds)
    monkeypatch.setattr("vramtui.probe.epoch.SECONDS", seconds)
    seen = []
    for batch in DataLoader(torch.zeros(4001), batch_size=4, num_workers=workers):
        seen.append(len(batch))
        assert len(seen) < 3 or epoch.goes_on(3)
    assert seen == [4, 4, 4, 4, 1]
