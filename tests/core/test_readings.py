import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramtui.core.base.units import GIB
from vramtui.core.estimate.devices import CARDS, DEFAULT_CARD, Device
from vramtui.core.estimate.estimate import Estimate, ledger_from_parts
from vramtui.core.observation import readings
from vramtui.core.observation.bounded_samples import MOST_PROBLEMS, bounded
from vramtui.core.observation.history import History
from vramtui.core.observation.snapshot import device_of, take_snapshot
from vramtui.core.schema.models import TransformerModel
from vramtui.core.schema.preset import Preset, PresetFile
from vramtui.core.schema.workload import TrainRun

UNREADABLE = readings.Absence.NO_PERMISSION
counts = st.none() | st.integers(min_value=0, max_value=2**53)
words = st.text(max_size=20)
processes = st.builds(
    readings.Process, pid=st.integers(1, 2**22), type=st.sampled_from(["C", "G", "C+G"]), used_memory=counts,
    user=st.none() | words, command=st.none() | words, started_at=st.none() | st.floats(0, 2e9),
    absent=st.dictionaries(st.sampled_from(["used_memory", "user"]), st.sampled_from(readings.Absence)),
)  # fmt: skip
gpus = st.builds(
    readings.Gpu, index=st.integers(0, 15), uuid=words, name=words,
    memory=st.builds(readings.Memory, total=counts, used=counts, reserved=counts, free=counts),
    processes=st.lists(processes, max_size=3).map(tuple), utilization=st.none() | st.integers(0, 100),
    throttle_reasons=st.none() | st.lists(words, max_size=2).map(tuple),
)  # fmt: skip
samples = st.builds(
    readings.Sample, taken_at=st.floats(0, 2e9), source=words, host=st.builds(readings.Host, name=words),
    gpus=st.lists(gpus, max_size=3).map(tuple),
    problems=st.lists(st.builds(readings.Problem, where=words, message=words, hint=words), max_size=2).map(tuple),
)  # fmt: skip


@given(samples)
def test_a_sample_survives_its_json(sample: readings.Sample) -> None:
    assert readings.decode_sample(readings.encode_sample(sample)) == sample


def test_what_is_impossible_or_new_is_left_out_and_told_until_it_is_right() -> None:
    read = readings.decode_sample(
        '{"taken_at":0,"source":"x","host":{"name":"h","rack":7},"fleet":[1],'
        '"gpus":[{"index":0,"uuid":"u","name":"n","colour":"green","memory":{"total":1,"tier":2}}]}'
    )
    memory = readings.Memory(total=1)
    assert read == readings.Sample(
        taken_at=0,
        source="x",
        host=readings.Host(name="h"),
        gpus=(readings.Gpu(index=0, uuid="u", name="n", memory=memory),),
    )
    right = sample(
        a_gpu(utilization=100, memory=readings.Memory(total=80, used=3, free=77)), a_gpu(1, power_watts=700.0)
    )
    assert bounded(right) is bounded(right, right) is right
    wrong = a_gpu(-3, utilization=-50, fan_percent=10**9, memory=readings.Memory(total=0, used=33 << 30, free=-1))
    (got,) = bounded(sample(wrong)).gpus
    assert (got.index, got.utilization, got.fan_percent) == (0, None, None)
    assert (got.absent["utilization"], got.absent["fan_percent"]) == (readings.Absence.FAILED, readings.Absence.FAILED)
    assert got.memory == readings.Memory(used=33 << 30)
    (problem,) = bounded(sample(wrong)).problems
    assert problem.message == (
        "left out: GPU 0 memory free -1, GPU 0 memory total 0, GPU 0 index -3, GPU 0 utilization -50, "
        "GPU 0 fan_percent 1000000000"
    )
    left = bounded(sample(a_gpu(utilization=-50)))
    after = bounded(sample(msgspec.structs.replace(left.gpus[0], utilization=7)), left)
    assert (after.gpus[0].utilization, after.gpus[0].absent) == (7, {})
    before = bounded(sample(a_gpu(utilization=-50), a_gpu(1)))
    assert bounded(msgspec.structs.replace(before, taken_at=2.0), before).problems == before.problems
    assert bounded(sample(a_gpu(), a_gpu(1))).problems == ()


def test_unattributed_is_what_no_process_accounts_for_also_of_instances_and_users() -> None:
    held = (readings.Process(pid=1, type="C", used_memory=30), readings.Process(pid=2, type="C", used_memory=None))
    assert (
        readings.Gpu(index=0, uuid="u", name="n", memory=readings.Memory(used=100), processes=held).unattributed == 70
    )
    assert readings.Gpu(index=0, uuid="u", name="n", processes=held).unattributed is None
    # A reused pid is another process.
    card = readings.Gpu(index=0, uuid="u", name="n")
    first = readings.process_key("h", card, readings.Process(pid=7, type="C", started_at=1.0))
    assert first != readings.process_key("h", card, readings.Process(pid=7, type="C", started_at=2.0))
    card = readings.Gpu(index=0, uuid="a", name="n")
    instance = readings.Gpu(index=0, uuid="m", name="n", mig_parent="a", mig_profile="1g.10gb")
    whole = readings.Gpu(index=1, uuid="b", name="n")
    assert readings.usable_gpus((card, instance, whole)) == (instance, whole)
    assert readings.usable_gpus((card, whole)) == (card, whole)
    sample = readings.Sample(taken_at=0, source="x", host=readings.Host(name="h"), gpus=(card, instance, whole))
    assert [row["gpu_uuid"] for row in sample.to_records()] == ["m", "b"]
    several = gpu(process(1, 5, user="anna"), process(2, 7, user="bo"), process(3, None, user="bo"), process(4, 2))
    assert several.held_by_user == {"anna": 5, "bo": 7, None: 2}
    assert gpu(process(1, 5, user="anna"), process(2, 7, user="anna")).held_by_user == {"anna": 12}
    assert gpu(process(1, None, user="anna")).held_by_user == {}
    later = msgspec.structs.replace(several, processes=(process(1, 6, user="anna"),))
    assert later.held_by_user == {"anna": 6}, "another reading adds up its own"


HOST, CONTAINER = readings.Host(name="h"), readings.Host(name="h", private_pids=True)
MEMORY = readings.Memory(total=80, used=40, reserved=1, free=39)


def process(pid: int, used: int | None = 1, **more: object) -> readings.Process:
    return readings.Process(pid=pid, type="C", used_memory=used, **more)  # type: ignore[arg-type]  # msgspec checks


def gpu(*processes: readings.Process, **more: object) -> readings.Gpu:
    fields: dict[str, object] = {"memory": MEMORY, **more}
    return readings.Gpu(index=0, uuid="G", name="card", processes=processes, **fields)  # type: ignore[arg-type]  # as above


@pytest.mark.parametrize(
    ("card", "host", "named"),
    [
        (gpu(process(1)), HOST, ()),
        (gpu(process(1)), None, ()),
        (gpu(absent={"processes": UNREADABLE}), HOST, ("every process, because the list is unavailable",)),
        (gpu(process(1, None), process(2)), HOST, ("1 process listed without a size",)),
        (gpu(process(1, None), process(2, None)), HOST, ("2 processes listed without a size",)),
        (
            gpu(process(1), absent={"processes.graphics": UNREADABLE}),
            HOST,
            ("graphics clients, as they are not reported",),
        ),
        (gpu(process(1, state="running")), CONTAINER, ("processes outside this container",)),
        (gpu(process(1, state="unseen")), CONTAINER, ()),  # the driver does list those outside
        (gpu(process(1, name="nvidia-cuda-mps-server")), HOST, ("clients of its MPS server",)),
        (gpu(process(1, command="/usr/bin/nvidia-cuda-mps-server")), HOST, ("clients of its MPS server",)),
        (gpu(mig_used=3), HOST, ("what MIG keeps for itself",)),
        (
            gpu(absent={"memory.reserved": readings.Absence.DRIVER_TOO_OLD}),
            HOST,
            ("the driver itself, which is too old to tell that apart",),
        ),
        (gpu(process(1, None), mig_used=3), CONTAINER, (
            "1 process listed without a size", "processes outside this container", "what MIG keeps for itself",
        )),
    ],
)  # fmt: skip
def test_only_what_the_readings_show_is_named(
    card: readings.Gpu, host: readings.Host | None, named: tuple[str, ...]
) -> None:
    assert readings.causes(card, host) == named


def test_bytes_held_beyond_what_is_in_use_are_shared_unless_something_grew_as_much() -> None:
    memory = readings.Memory(total=80, used=10, reserved=1, free=69)

    def sample(at: float, used: int) -> readings.Sample:
        rows = (process(1, used), process(2, 6))
        return readings.Sample(taken_at=at, source="nvml", host=HOST, gpus=(gpu(*rows, memory=memory),))

    history = History()
    history.add(sample(1.0, 4))
    assert history.grown("h", "G") is None
    card = gpu(process(1, 7), process(2, 6), memory=memory)
    assert card.unattributed == -3
    assert "or one grew" in readings.overlap(card, history.grown("h", "G"))
    history.add(sample(2.0, 7))
    assert (history.grown("h", "G"), readings.overlap(card, 3)) == (3, "a process grew between two readings")
    history.add(sample(3.0, 7))
    assert (history.grown("h", "G"), readings.overlap(card, 0)) == (0, "counted more than once: processes share it")


MEGABYTE = 1 << 20


def sample(*gpus: readings.Gpu, problems: tuple[readings.Problem, ...] = ()) -> readings.Sample:
    return readings.Sample(taken_at=1.0, source="feed", host=readings.Host(name="h"), gpus=gpus, problems=problems)


def a_gpu(index: int = 0, **fields: object) -> readings.Gpu:
    return msgspec.structs.replace(readings.Gpu(index=index, uuid=f"GPU-{index}", name="H100"), **fields)


def test_cards_of_one_uuid_are_told_apart_and_long_texts_are_cut() -> None:
    first, second = bounded(sample(a_gpu(), a_gpu(1, uuid="GPU-0"))).gpus
    assert (first.uuid, second.uuid) == ("GPU-0", "GPU-0 (2)")
    part = a_gpu(0, uuid="MIG-1", mig_parent="GPU-b")
    lost = a_gpu(0, uuid="GPU-c", state="lost")
    seen = bounded(sample(a_gpu(), a_gpu(0, uuid="GPU-b"), part, a_gpu(1), lost))
    assert [one.index for one in seen.gpus] == [0, 2, 2, 1, 0]
    assert [problem.message for problem in seen.problems] == ["left out: GPU 1 index of another GPU, 0"]
    assert bounded(msgspec.structs.replace(seen, taken_at=2.0), seen).gpus == seen.gpus
    row = readings.Process(pid=1, type="C", user="u" * MEGABYTE, command="c" * 2 * MEGABYTE, used_memory=-5)
    many = tuple(readings.Problem(where="w", message=f"m{number}") for number in range(20_000))
    got = bounded(sample(a_gpu(name="n" * MEGABYTE, processes=(row,)), problems=many))
    (process,) = got.gpus[0].processes
    assert (len(got.gpus[0].name), len(process.user or ""), len(process.command or "")) == (256, 256, 1 << 16)
    assert (process.used_memory, process.absent) == (None, {"used_memory": readings.Absence.FAILED})
    assert (len(got.problems), got.problems[MOST_PROBLEMS].message) == (MOST_PROBLEMS + 2, "and 19,800 more")


PRESET = PresetFile(
    key="p",
    path="p.toml",
    bundled=True,
    preset=Preset(
        name="P",
        model=TransformerModel(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, vocab_size=100),
        run=TrainRun(),
    ),
)


def sampled(at: float, used: int) -> readings.Sample:
    processes = (
        readings.Process(pid=1, type="C", used_memory=used, started_at=0.0),
        readings.Process(pid=2, type="G", used_memory=None, started_at=0.0),
    )
    memory = readings.Memory(total=80 * GIB, used=used, reserved=GIB, free=79 * GIB - used)
    gpu = readings.Gpu(index=3, uuid="G", name="card", memory=memory, processes=processes, compute_capability=(8, 0))
    return readings.Sample(taken_at=at, source="test", host=readings.Host(name="h"), gpus=(gpu,))


def estimate(found: PresetFile, device: Device) -> Estimate | None:
    assert found is PRESET
    assert device == Device(name="card", capability=(8, 0), total_memory=79 * GIB)
    ledger = ledger_from_parts({"weights": 10 * GIB}, reserved=10 * GIB, context=0)
    return Estimate(method="analytic", parts=(), ledger=ledger, peak_phase="step")


def test_peaks_predictions_and_comparisons_and_none_without_an_estimate() -> None:
    seen = History()
    seen.add(sampled(0, 9 * GIB))
    latest = sampled(1, 4 * GIB)
    seen.add(latest)
    key = readings.process_key("h", latest.gpus[0], latest.gpus[0].processes[0])
    taken = take_snapshot(latest, seen, {key: PRESET}, estimate, {"vramtui": "1"})
    first, second = taken.holdings
    assert (first.key, first.gpu_index, first.preset) == (key, 3, "p")
    assert (first.comparison.now, first.comparison.peak, first.comparison.predicted) == (4 * GIB, 9 * GIB, 10 * GIB)
    assert (second.preset, second.peak, second.comparison) == (None, None, None)
    moment = sampled(0, GIB)
    key = readings.process_key("h", moment.gpus[0], moment.gpus[0].processes[0])
    taken = take_snapshot(moment, History(), {key: PRESET}, lambda _found, _device: None, {})
    assert (taken.holdings[0].preset, taken.holdings[0].comparison) == ("p", None)
    usual = CARDS[DEFAULT_CARD]
    device = device_of(readings.Gpu(index=0, uuid="G", name="secret"))
    assert device == Device(name="secret", capability=usual.capability, total_memory=usual.total_memory)
    memory = readings.Memory(used=3 * GIB, free=97 * GIB + 5, unified=True)
    assert device_of(readings.Gpu(index=0, uuid="G", name="NVIDIA GB10", memory=memory)).total_memory == 100 * GIB
