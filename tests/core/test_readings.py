"""Samples survive their JSON form, and processes are told apart."""

from hypothesis import given
from hypothesis import strategies as st

from vramtui.core.observation.readings import (
    Absence,
    Gpu,
    Host,
    Memory,
    Problem,
    Process,
    Sample,
    decode_sample,
    encode_sample,
    process_key,
    usable_gpus,
)

counts = st.none() | st.integers(min_value=0, max_value=2**53)
words = st.text(max_size=20)
processes = st.builds(
    Process,
    pid=st.integers(1, 2**22),
    type=st.sampled_from(["C", "G", "C+G"]),
    used_memory=counts,
    user=st.none() | words,
    command=st.none() | words,
    started_at=st.none() | st.floats(0, 2e9),
    absent=st.dictionaries(st.sampled_from(["used_memory", "user"]), st.sampled_from(Absence)),
)
gpus = st.builds(
    Gpu,
    index=st.integers(0, 15),
    uuid=words,
    name=words,
    memory=st.builds(Memory, total=counts, used=counts, reserved=counts, free=counts),
    processes=st.lists(processes, max_size=3).map(tuple),
    utilization=st.none() | st.integers(0, 100),
    throttle_reasons=st.none() | st.lists(words, max_size=2).map(tuple),
)
samples = st.builds(
    Sample,
    taken_at=st.floats(0, 2e9),
    source=words,
    host=st.builds(Host, name=words),
    gpus=st.lists(gpus, max_size=3).map(tuple),
    problems=st.lists(st.builds(Problem, where=words, message=words, hint=words), max_size=2).map(tuple),
)


@given(samples)
def test_a_sample_survives_its_json(sample: Sample) -> None:
    assert decode_sample(encode_sample(sample)) == sample


def test_what_a_newer_version_adds_is_passed_over() -> None:
    read = decode_sample(
        '{"taken_at":0,"source":"x","host":{"name":"h","rack":7},"fleet":[1],'
        '"gpus":[{"index":0,"uuid":"u","name":"n","colour":"green","memory":{"total":1,"tier":2}}]}'
    )
    memory = Memory(total=1)
    assert read == Sample(
        taken_at=0, source="x", host=Host(name="h"), gpus=(Gpu(index=0, uuid="u", name="n", memory=memory),)
    )


def test_unattributed_is_what_no_process_accounts_for() -> None:
    held = (Process(pid=1, type="C", used_memory=30), Process(pid=2, type="C", used_memory=None))
    assert Gpu(index=0, uuid="u", name="n", memory=Memory(used=100), processes=held).unattributed == 70
    assert Gpu(index=0, uuid="u", name="n", processes=held).unattributed is None


def test_a_reused_pid_is_another_process() -> None:
    gpu = Gpu(index=0, uuid="u", name="n")
    first = process_key("h", gpu, Process(pid=7, type="C", started_at=1.0))
    assert first != process_key("h", gpu, Process(pid=7, type="C", started_at=2.0))


def test_a_card_that_is_cut_into_instances_is_these() -> None:
    card = Gpu(index=0, uuid="a", name="n")
    instance = Gpu(index=0, uuid="m", name="n", mig_parent="a", mig_profile="1g.10gb")
    whole = Gpu(index=1, uuid="b", name="n")
    assert usable_gpus((card, instance, whole)) == (instance, whole)
    assert usable_gpus((card, whole)) == (card, whole)
    sample = Sample(taken_at=0, source="x", host=Host(name="h"), gpus=(card, instance, whole))
    assert [row["gpu_uuid"] for row in sample.to_records()] == ["m", "b"]
