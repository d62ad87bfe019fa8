"""Out-of-memory messages as people post them, and what each is a case of."""

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from vramtui.cli.main import program
from vramtui.core.base.errors import UserError
from vramtui.core.observation.oom_text import read_oom

GIB, MIB = 1 << 30, 1 << 20
TRACEBACK = """Traceback (most recent call last):
  File "/srv/anna/train.py", line 57, in <module>
    loss = model(batch)
  File "/usr/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1553, in _call_impl
    return forward_call(*args, **kwargs)
"""
ROOM = TRACEBACK + (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 22.00 MiB. GPU 0 has a total capacity of 23.65"
    " GiB of which 11.06 MiB is free. Including non-PyTorch memory, this process has 23.60 GiB memory in use. Of the"
    " allocated memory 23.20 GiB is allocated by PyTorch, and 4.87 MiB is reserved by PyTorch but unallocated. If"
    " reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
)
FRAGMENTED = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 1 has a total capacty of 23.65 GiB of"
    " which 1.66 GiB is free. Including non-PyTorch memory, this process has 20.81 GiB memory in use. Of the allocated"
    " memory 12.09 GiB is allocated by PyTorch, and 4.84 GiB is reserved by PyTorch but unallocated."
)
NEIGHBOUR = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.19 GiB of"
    " which 1.50 GiB is free. Process 1246069 has 60.00 GiB memory in use. Including non-PyTorch memory, this process"
    " has 17.69 GiB memory in use. Of the allocated memory 17.00 GiB is allocated by PyTorch, and 100.00 MiB is"
    " reserved by PyTorch but unallocated."
)
OLD = (
    "RuntimeError: CUDA out of memory. Tried to allocate 128.00 MiB (GPU 0; 11.17 GiB total capacity; 10.85 GiB already"
    " allocated; 24.81 MiB free; 10.86 GiB reserved in total by PyTorch)"
)
XLA = (
    "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 7406166528 bytes."
)
VLLM = (
    "ValueError: The model's max seq len (8192) is larger than the maximum number of tokens that can be stored in KV"
    " cache (2400). Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine."
)


@pytest.mark.parametrize(
    ("text", "cause", "asked"),
    [
        (ROOM, "room", 22 * MIB),
        (FRAGMENTED, "fragmentation", 3 * GIB),
        (NEIGHBOUR, "neighbour", 2 * GIB),
        (OLD, "room", 128 * MIB),
        (XLA, "unknown", 7406166528),
        (VLLM, "room", None),
    ],
)
def test_the_cause_is_told_apart(text: str, cause: str, asked: int | None) -> None:
    report = read_oom(text)
    assert (report.cause, report.asked) == (cause, asked)
    assert next(report.sentences())


def test_every_figure_is_read() -> None:
    report = read_oom(NEIGHBOUR)
    assert (report.gpu, report.others) == (0, {1246069: 60 * GIB})
    assert (report.total, report.free) == (round(79.19 * GIB), round(1.5 * GIB))
    assert (report.allocated, report.unallocated) == (17 * GIB, 100 * MIB)
    assert read_oom(OLD).unallocated == pytest.approx(0.01 * GIB, abs=1)
    assert read_oom(VLLM).pool == (8192, 2400)
    assert "--max-model-len 2400" in next(read_oom(VLLM).sentences())


def test_the_users_own_line_and_the_last_message_count() -> None:
    assert read_oom(ROOM).line == "/srv/anna/train.py:57"
    assert read_oom(f"{OLD}\n\n{ROOM}").asked == 22 * MIB


def test_other_text_is_refused() -> None:
    with pytest.raises(UserError, match="no out-of-memory message"):
        read_oom("epoch 1: loss 2.3")


@given(st.text())
def test_no_text_breaks_it(text: str) -> None:
    for around in (f"{text} Tried to allocate {text} MiB", f"Tried to allocate 1.2.3 GiB {text}", text):
        with suppress(UserError):
            list(read_oom(around).sentences())


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VRAMTUI_CONFIG_DIR", str(tmp_path))
    log = tmp_path / "train.log"
    log.write_text(f"step 1\n{ROOM}\n", encoding="utf-8")
    runner = CliRunner()
    done = runner.invoke(program(), ["oom", str(log)])
    assert done.exit_code == 0
    assert done.stdout.startswith("Not enough room: 22.00 MiB was asked for")
    assert "asked for at /srv/anna/train.py:57" in done.stdout
    pasted = runner.invoke(program(), ["oom", "--json"], input=NEIGHBOUR)
    assert json.loads(pasted.stdout)["cause"] == "neighbour"
    advised = runner.invoke(program(), ["oom", str(log), "--preset", "llama-3.2-3b-lora"])
    assert "What would have fitted: " in advised.stdout
    assert "--set " in advised.stdout
    assert runner.invoke(program(), ["oom", str(tmp_path / "none.log")]).exit_code == 2
