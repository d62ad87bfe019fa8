"""The steppers of the estimate panel."""

from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from tests.app.fakes import MODEL, PRESETS
from vramtui.app.state.run_fields import FIELDS, LENGTHS, SIZES, changes_of, fields_of, first_of, step, value_of
from vramtui.core.schema.workload import InferRun, Optimizer, ServeRun, TrainRun, Workload

TRAIN, SERVE = (found.preset.workload for found in PRESETS)


def test_each_kind_of_run_has_its_own_fields() -> None:
    assert [field.name for field in fields_of(TRAIN)] == [
        "batch_size",
        "sequence_length",
        "gradient_accumulation_steps",
        "precision",
        "quantization",
        "optimizer",
        "attention",
        "checkpointing",
    ]
    assert [field.name for field in fields_of(SERVE)] == [
        "batch_size",
        "sequence_length",
        "new_tokens",
        "precision",
        "quantization",
        "attention",
        "kv_cache",
    ]


def trained(workload: Workload) -> TrainRun:
    assert isinstance(workload.run, TrainRun)
    return workload.run


def test_a_batch_goes_by_ones_and_never_below_one() -> None:
    assert trained(step(TRAIN, "batch_size", 1)).batch_size == 5
    one = Workload(model=MODEL, run=TrainRun(batch_size=1))
    assert step(one, "batch_size", -1) == one


def test_tokens_go_up_a_ladder() -> None:
    workload = Workload(model=MODEL, run=TrainRun(sequence_length=4000))
    up = step(workload, "sequence_length", 1)
    assert trained(up).sequence_length == 4096
    assert trained(step(up, "sequence_length", 1)).sequence_length == 6144
    assert trained(step(up, "sequence_length", -1)).sequence_length == 3072
    unset = Workload(model=MODEL, run=TrainRun())
    assert trained(step(unset, "sequence_length", 1)).sequence_length == 1024
    new = Workload(model=MODEL, run=InferRun(new_tokens=16))
    assert step(new, "new_tokens", -1) == Workload(model=MODEL, run=InferRun(new_tokens=0))


def test_choices_go_round() -> None:
    names = get_args(Optimizer)
    seen = [TRAIN]
    for _ in names:
        seen.append(step(seen[-1], "optimizer", 1))
    assert seen[-1] == TRAIN
    assert {trained(workload).optimizer for workload in seen} == set(names)
    assert step(seen[1], "optimizer", -1) == TRAIN


def test_a_field_the_run_does_not_have_is_left_alone() -> None:
    assert step(SERVE, "optimizer", 1) == SERVE


steps = st.lists(st.tuples(st.sampled_from([field.name for field in FIELDS]), st.sampled_from([-1, 1])), max_size=30)


SERVER = Workload(model=MODEL, run=ServeRun())


def test_a_server_is_stepped_by_its_own_fields() -> None:
    assert first_of(SERVER, SIZES) == "max_num_seqs"
    assert first_of(SERVER, LENGTHS) == "max_model_len"
    assert isinstance(SERVER.run, ServeRun)
    less = step(SERVER, "gpu_memory_utilization", -1).run
    assert isinstance(less, ServeRun)
    assert less.gpu_memory_utilization == 0.85


@given(st.sampled_from([TRAIN, SERVE, SERVER]), steps)
def test_any_steps_leave_a_run_that_a_preset_could_hold(start: Workload, taken: list[tuple[str, int]]) -> None:
    workload = start
    for name, direction in taken:
        workload = step(workload, name, direction)
    changed = changes_of(workload, start)
    for field in fields_of(workload):
        value = value_of(workload, field)
        assert (field.name in changed) == (value != value_of(start, field))
        if field.choices:
            assert value in field.choices
        else:
            assert value is None or value > 0 or value == field.least
    assert workload.model == start.model
