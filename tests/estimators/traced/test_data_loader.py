"""Batches of many sizes: which of an epoch a trace runs."""

import json
from pathlib import Path

import msgspec
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
LARGEST = (
    " gives batches of 1.2 KiB to 25.0 KiB of inputs; the largest of the 11 in its epoch, loaded without the model, is "
    "run in step 1"
)


def result_of(folder: Path, code: str, *, largest_batch: bool | None) -> TraceResult:
    script = folder / "script.py"
    script.write_text(code, encoding="utf-8")
    return WARM.trace(TraceRequest(path=str(script), device=card("H200"), largest_batch=largest_batch))


@pytest.mark.parametrize("asked", [True, None])
def test_the_largest_batch_of_the_epoch_is_run_after_the_first_step(tmp_path: Path, asked: bool | None) -> None:
    """What it takes is what a job of such batches alone takes."""
    plain = result_of(tmp_path, LONG_LAST + TEXTS, largest_batch=False)
    found = result_of(tmp_path, LONG_LAST + TEXTS, largest_batch=asked)
    long = result_of(tmp_path, "LENGTHS = [400] * 80" + TEXTS, largest_batch=asked)
    assert plain.peak_allocated < found.peak_allocated == long.peak_allocated
    assert found.peak_step == 1
    note = next(one for one in found.warnings if one.startswith("the loader at "))
    assert note.endswith(LARGEST)
    assert not any("batches" in one for one in (*plain.warnings, *long.warnings))


def test_the_optimizers_states_are_there_when_the_largest_batch_runs(tmp_path: Path) -> None:
    adam = TEXTS.replace("SGD(net.parameters(), lr=0.1)", "Adam(net.parameters())")
    found = result_of(tmp_path, LONG_LAST + adam, largest_batch=None)
    long = result_of(tmp_path, "LENGTHS = [400] * 80" + adam, largest_batch=None)
    assert found.peak_allocated == long.peak_allocated


# What each batch of three held, and what is drawn behind them, by every kind of generator.
DRAWN = """
import random, sys
import numpy
import torch
from torch.utils.data import DataLoader
random.seed(1), numpy.random.seed(2), torch.manual_seed(3)
own = torch.Generator().manual_seed(4)
class Texts(torch.utils.data.Dataset):
    def __len__(self):
        return 96
    def __getitem__(self, place):
        length = 1 + place + random.randrange(50) + numpy.random.randint(50) + int(torch.randint(50, ()))
        return torch.full((length,), place)
def padded(rows):
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
net = torch.nn.Embedding(1000, 64).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
came = []
for batch in DataLoader(Texts(), batch_size=8, shuffle=True, collate_fn=padded, generator=OWN):
    optimizer.zero_grad()
    net(batch.cuda()).sum().backward()
    came.append([batch.shape[1], batch[:, 0].tolist()])
    optimizer.step()
    if len(came) == 3:
        came.append([random.random(), numpy.random.rand(), torch.rand(()).item(), own.initial_seed()])
        print(came, file=open(sys.argv[1], "w"))
"""


@pytest.mark.parametrize("own", ["own", "None"])
def test_a_look_at_the_epoch_leaves_all_random_numbers_where_they_were(tmp_path: Path, own: str) -> None:
    """Of three batches the second is another one; those around it and what is drawn later are as without a look."""
    pytest.importorskip("numpy")
    script, said = tmp_path / "script.py", []
    script.write_text(DRAWN.replace("OWN", own), encoding="utf-8")
    for asked in (False, None, True):
        out = tmp_path / f"{asked}.txt"
        request = TraceRequest(path=str(script), arguments=(str(out),), device=card("H200"), largest_batch=asked)
        result = WARM.trace(msgspec.structs.replace(request, keep_files=True))
        said.append(json.loads(out.read_text(encoding="utf-8")))
        assert any("in its epoch" in one for one in result.warnings) is (asked is not False)
    plain, found, wanted = said
    assert found == wanted
    assert [found[0], *found[2:]] == [plain[0], *plain[2:]]
    assert found[1][0] >= max(plain[0][0], plain[1][0] + 1, plain[2][0])


SLOW = """
import time
def padded(rows):
    ends = time.process_time() + 0.7
    while time.process_time() < ends:
        pass
    return {"tokens": torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)}
net ="""
# Samples that come once, in the order of a stream.
STREAM = """
class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(texts)
texts_of, texts = texts, Stream.__new__(Stream)
texts.__class__.__iter__ = lambda _self: iter(texts_of)
net ="""


@pytest.mark.parametrize("loading", [SLOW, STREAM])
def test_no_epoch_is_loaded_unasked_where_that_takes_long_or_takes_samples_away(tmp_path: Path, loading: str) -> None:
    """Then the batches that came are told, where they differ."""
    lengths = "LENGTHS = [20] * 8 + [400] * 8 + [30] * 8 + [500] * 64"
    result = result_of(tmp_path, lengths + TEXTS.replace("\nnet =", loading), largest_batch=None)
    assert not any("in its epoch" in one for one in result.warnings)
    assert any("batches differ" in one and "--largest-batch" in one for one in result.warnings)


ON_CARD = """
def padded(rows):
    return {"tokens": torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).cuda()}
net ="""


def test_no_epoch_is_loaded_unasked_where_loading_uses_the_card(tmp_path: Path) -> None:
    code = LONG_LAST + TEXTS.replace("\nnet =", ON_CARD)
    plain, asked = (result_of(tmp_path, code, largest_batch=way) for way in (False, None))
    assert plain == asked
