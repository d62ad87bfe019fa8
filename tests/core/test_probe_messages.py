"""What the messages of a probe amount to."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from vramtui.core.observation.probe_messages import (
    FIRST_STEPS,
    LATEST,
    Beat,
    End,
    MemoryCounters,
    ObservedJob,
    PhaseEnd,
)

GIB = 1 << 30


def beat(*devices: MemoryCounters, moments: tuple[PhaseEnd, ...] = (), **parts: dict[str, int]) -> Beat:
    return Beat(v=1, pid=1, at=0.0, phase="forward", step=0, devices=devices, parts=parts, moments=moments)  # type: ignore[arg-type]  # the parts' names are given by the tests


def test_peaks_only_grow_and_each_by_itself() -> None:
    job = ObservedJob(pid=1)
    job = job.heard(beat(MemoryCounters(index=0, allocated_peak=5, reserved_peak=9, num_ooms=1), weights={"cuda:0": 4}))
    job = job.heard(
        beat(MemoryCounters(index=0, allocated_peak=7, reserved_peak=8), MemoryCounters(index=1, allocated_peak=1))
    )
    assert job.peaks[0] == MemoryCounters(index=0, allocated_peak=7, reserved_peak=9, num_ooms=1)
    assert job.peaks[1].allocated_peak == 1
    job = job.heard(beat(weights={"cuda:0": 3, "cpu": 2}))
    assert job.parts == {"weights": {"cuda:0": 4, "cpu": 2}}


def test_the_ledger_adds_up_to_what_pytorch_allocated() -> None:
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


def test_the_context_of_a_job_that_was_gone_before_its_last_words_is_not_known() -> None:
    job = ObservedJob(pid=1).heard(beat(MemoryCounters(index=0, allocated_peak=2 * GIB, reserved_peak=3 * GIB)))
    running = job.ledger_beside(0, 4 * GIB)
    assert (running.reserved, running.context, running.process) == (3 * GIB, GIB, 4 * GIB)
    killed = msgspec.structs.replace(job, gone=True).ledger_beside(0, 9 * GIB)
    assert (killed.reserved, killed.context, killed.process) == (3 * GIB, None, 9 * GIB)
    ended = msgspec.structs.replace(job, gone=True, end=End(v=1, pid=1, at=9.0)).ledger_beside(0, 4 * GIB)
    assert ended == running
    assert job.ledger_beside(0, 2 * GIB).process is None  # read before the allocator had grown


def test_what_was_not_told_is_not_known() -> None:
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
