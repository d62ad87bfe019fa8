"""Batches of many sizes: which of an epoch a trace runs."""

from pathlib import Path

import pytest

from tests.warm_traces import WARM
from vramtui.core.estimate.devices import card
from vramtui.estimators.traced.process.results import TraceRequest, TraceResult

pytestmark = pytest.mark.torch

TEXTS = """
import torch
from torch.utils.data import DataLoader
texts = [torch.ones(length, dtype=torch.long) for length in LENGTHS]
def padded(rows):
    return {"tokens": torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), "names": ["a text"]}
net = torch.nn.Sequential(torch.nn.Embedding(1000, 256), torch.nn.Linear(256, 1000)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
held = DataLoader(texts, batch_size=8, collate_fn=padded)
for _epoch in range(2):
    for batch in held:
        optimizer.zero_grad()
        net(batch["tokens"].cuda()).sum().backward()
        optimizer.step()
"""
LONG_LAST = "LENGTHS = [20] * 80 + [400] + [30] * 7"


def result_of(folder: Path, lengths: str, *, largest_batch: bool) -> TraceResult:
    script = folder / "script.py"
    script.write_text(lengths + TEXTS, encoding="utf-8")
    return WARM.trace(TraceRequest(path=str(script), device=card("H200"), largest_batch=largest_batch))


def test_the_largest_batch_of_the_epoch_is_run_where_that_is_asked_for(tmp_path: Path) -> None:
    plain = result_of(tmp_path, LONG_LAST, largest_batch=False)
    first = result_of(tmp_path, LONG_LAST, largest_batch=True)
    long = result_of(tmp_path, "LENGTHS = [400] * 80", largest_batch=False)
    assert plain.peak_allocated < first.peak_allocated == long.peak_allocated
    assert first.peak_step == 0
    note = next(one for one in first.warnings if one.startswith("the largest of "))
    assert note.startswith("the largest of 11 batches that the loader at ")
    assert note.endswith("comes first: 25.0 KiB (the smallest 1.2 KiB); they were loaded without the model")
    assert not any("batches differ" in one for one in first.warnings)
