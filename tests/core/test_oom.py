import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.commands import invoke
from tests.tables import for_each, rows
from vramtui.core.base.errors import UserError
from vramtui.core.observation.oom.advice import sentences_of
from vramtui.core.observation.oom.read import read_oom
from vramtui.core.observation.probe_messages import (
    FIRST_STEPS,
    LATEST,
    Beat,
    End,
    MemoryCounters,
    ObservedJob,
    PhaseEnd,
)

MESSAGES: list[dict[str, Any]] = rows(__file__, "message")
TEXTS: dict[str, str] = {row["name"]: row["text"] for row in MESSAGES if "name" in row}
LONG = ("one_sequence", "at_the_start", "no_blocks", "sglang", "llama_cpp", "xla_parts", "bfc", "mps", "async")


def plain(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    return "none" if value is None else list(value) if isinstance(value, tuple) else value


@for_each(MESSAGES)
def test_each_message_is_read_and_explained(row: dict[str, Any]) -> None:
    report = read_oom(f"step 3: loss 2.1\n{row['text']}\nterminating\n")
    assert (report.program, report.cause, report.asked) == (row["program"], row["cause"], row["asked"] or None)
    wanted = row.get("report", {})
    assert {name: plain(getattr(report, name)) for name in wanted} == wanted
    sentences = list(sentences_of(report))
    assert sentences[0].startswith(row.get("begins", ""))
    told = " ".join(sentences)
    assert [words for words in row.get("said", ()) if words not in told] == []
    assert [words for words in row.get("never", ()) if words in told] == []


@for_each(rows(__file__, "refused"))
def test_other_text_is_refused(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        read_oom(text)


@pytest.mark.parametrize("digits", ["0", "9" * 5000, "1.2.3", "1e999"])
def test_no_number_breaks_it(digits: str) -> None:
    for name in ("limited", "old", "vllm", *LONG[:-1]):
        message = TEXTS[name]
        for place in re.finditer(r"\d+(?:\.\d+)?", message):
            with suppress(UserError):
                assert list(sentences_of(read_oom(message[: place.start()] + digits + message[place.end() :])))
    for name in ("tensor", "cupy", "triton", "host", "numpy", "kernel"):
        with suppress(UserError):
            assert list(sentences_of(read_oom(re.sub(r"\d+", digits, TEXTS[name]))))


@pytest.mark.slow
def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VRAMTUI_CONFIG_DIR", str(tmp_path))
    log = tmp_path / "train.log"
    log.write_text(f"step 1\n{TEXTS['room']}\n", encoding="utf-8")
    done = invoke("oom", str(log), columns=200)
    assert done.exit_code == 0
    assert done.stdout.startswith("Not enough memory: 22.00 MiB was requested, 11.06 MiB was free")
    assert "requested at /srv/anna/train.py:57" in done.stdout
    pasted = invoke("oom", "--json", columns=200, input=TEXTS["neighbour"])
    assert json.loads(pasted.stdout)["cause"] == "another process"
    advised = invoke("oom", str(log), "--preset", "llama-3.2-3b-lora", columns=200)
    assert "What would have fitted: " in advised.stdout
    assert "--set " in advised.stdout
    assert invoke("oom", str(tmp_path / "none.log"), columns=200).exit_code == 2
    told = invoke("oom", "--preset", "llama-3.2-3b-lora", columns=200, input=TEXTS["kernel"])
    killed = "Not GPU memory: the host's memory ran out and the kernel ended python (pid 4211), which held 50.00 GiB"
    assert told.stdout.startswith(killed)
    assert "--preset" not in told.stdout
    assert "What would have fitted" not in told.stdout


GIB = 1 << 30


def beat(*devices: MemoryCounters, moments: tuple[PhaseEnd, ...] = (), **parts: dict[str, int]) -> Beat:
    return Beat(v=1, pid=1, at=0.0, phase="forward", step=0, devices=devices, parts=parts, moments=moments)  # type: ignore[arg-type]  # the parts' names are given by the tests


def test_the_ledger_adds_up_and_what_was_not_told_is_not_known() -> None:
    job = ObservedJob(pid=1)
    job = job.heard(beat(MemoryCounters(index=0, allocated_peak=5, reserved_peak=9, num_ooms=1), weights={"cuda:0": 4}))
    job = job.heard(
        beat(MemoryCounters(index=0, allocated_peak=7, reserved_peak=8), MemoryCounters(index=1, allocated_peak=1))
    )
    assert job.peaks[0] == MemoryCounters(index=0, allocated_peak=7, reserved_peak=9, num_ooms=1)
    assert job.peaks[1].allocated_peak == 1
    job = job.heard(beat(weights={"cuda:0": 3, "cpu": 2}))
    assert job.parts == {"weights": {"cuda:0": 4, "cpu": 2}}
    counters = MemoryCounters(index=0, allocated_peak=10 * GIB, reserved_peak=12 * GIB)
    job = ObservedJob(pid=1).heard(
        beat(
            counters,
            weights={"cuda:0": 2 * GIB},
            gradients={"cuda:0": 2 * GIB},
            optimizer={"cuda:0": 4 * GIB, "cpu": 8},
        )
    )
    ledger = job.ledger(0)
    assert (ledger.weights, ledger.gradients, ledger.optimizer) == (2 * GIB, 2 * GIB, 4 * GIB)
    assert ledger.activations == 2 * GIB
    assert (ledger.allocated, ledger.cached, ledger.reserved) == (10 * GIB, 2 * GIB, 12 * GIB)
    assert (ledger.process, ledger.context) == (None, None)
    job = ObservedJob(pid=1).heard(beat(MemoryCounters(index=0, allocated_peak=2 * GIB, reserved_peak=3 * GIB)))
    running = job.ledger_beside(0, 4 * GIB)
    assert (running.reserved, running.context, running.process) == (3 * GIB, GIB, 4 * GIB)
    killed = msgspec.structs.replace(job, gone=True).ledger_beside(0, 9 * GIB)
    assert (killed.reserved, killed.context, killed.process) == (3 * GIB, None, 9 * GIB)
    ended = msgspec.structs.replace(job, gone=True, end=End(v=1, pid=1, at=9.0)).ledger_beside(0, 4 * GIB)
    assert ended == running
    assert job.ledger_beside(0, 2 * GIB).process is None  # read before the allocator had grown
    ledger = ObservedJob(pid=1).heard(beat(MemoryCounters(index=0, allocated_peak=5))).ledger(0)
    assert (ledger.weights, ledger.activations, ledger.allocated, ledger.cached) == (None, None, 5, None)


@given(st.lists(st.integers(0, 500), max_size=600))
def test_the_first_steps_stay_and_the_memory_is_bounded(steps: list[int]) -> None:
    job = ObservedJob(pid=1)
    for step in sorted(steps):
        job = job.heard(beat(moments=(PhaseEnd(at=0.0, phase="forward", step=step, device=0, allocated=step),)))
    kept = [end.step for end in job.moments]
    first = [step for step in sorted(steps) if step < FIRST_STEPS]
    assert kept[: min(len(first), LATEST * FIRST_STEPS)] == first[: LATEST * FIRST_STEPS]
    assert len(kept) <= LATEST * FIRST_STEPS + LATEST
    assert (
        kept[len(first) :] == [step for step in sorted(steps) if step >= FIRST_STEPS][-LATEST:] or len(first) > LATEST
    )
