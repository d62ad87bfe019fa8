"""A moment taken away: every process with its peak, its preset and its comparison."""

from vramtui.core.base.units import GIB
from vramtui.core.estimate.devices import CARDS, DEFAULT_CARD, Device
from vramtui.core.estimate.estimate import Estimate, ledger_from_parts
from vramtui.core.observation.history import History
from vramtui.core.observation.readings import Gpu, Host, Memory, Process, Sample, process_key
from vramtui.core.observation.snapshot import device_of, take_snapshot
from vramtui.core.schema.models import TransformerModel
from vramtui.core.schema.preset import Preset, PresetFile
from vramtui.core.schema.workload import TrainRun

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


def sample(at: float, used: int) -> Sample:
    processes = (
        Process(pid=1, type="C", used_memory=used, started_at=0.0),
        Process(pid=2, type="G", used_memory=None, started_at=0.0),
    )
    memory = Memory(total=80 * GIB, used=used, reserved=GIB, free=79 * GIB - used)
    gpu = Gpu(index=3, uuid="G", name="card", memory=memory, processes=processes, compute_capability=(8, 0))
    return Sample(taken_at=at, source="test", host=Host(name="h"), gpus=(gpu,))


def estimate(found: PresetFile, device: Device) -> Estimate | None:
    assert found is PRESET
    assert device == Device(name="card", capability=(8, 0), total_memory=79 * GIB)
    ledger = ledger_from_parts({"weights": 10 * GIB}, reserved=10 * GIB, context=0)
    return Estimate(method="analytic", parts=(), ledger=ledger, peak_phase="step")


def test_peaks_predictions_and_comparisons() -> None:
    seen = History()
    seen.add(sample(0, 9 * GIB))
    latest = sample(1, 4 * GIB)
    seen.add(latest)
    key = process_key("h", latest.gpus[0], latest.gpus[0].processes[0])
    taken = take_snapshot(latest, seen, {key: PRESET}, estimate, {"vramtui": "1"})
    first, second = taken.holdings
    assert first.comparison is not None
    assert (first.key, first.gpu_index, first.preset) == (key, 3, "p")
    assert (first.comparison.now, first.comparison.peak, first.comparison.predicted) == (4 * GIB, 9 * GIB, 10 * GIB)
    assert (second.preset, second.peak, second.comparison) == (None, None, None)


def test_a_preset_without_an_estimate_has_no_comparison() -> None:
    moment = sample(0, GIB)
    key = process_key("h", moment.gpus[0], moment.gpus[0].processes[0])
    taken = take_snapshot(moment, History(), {key: PRESET}, lambda _found, _device: None, {})
    assert (taken.holdings[0].preset, taken.holdings[0].comparison) == ("p", None)


def test_a_card_that_tells_nothing_is_taken_for_a_usual_one() -> None:
    usual = CARDS[DEFAULT_CARD]
    device = device_of(Gpu(index=0, uuid="G", name="secret"))
    assert device == Device(name="secret", capability=usual.capability, total_memory=usual.total_memory)


def test_a_card_that_shares_the_hosts_memory_is_as_large_as_what_it_could_have() -> None:
    memory = Memory(used=3 * GIB, free=97 * GIB + 5, unified=True)
    assert device_of(Gpu(index=0, uuid="G", name="NVIDIA GB10", memory=memory)).total_memory == 100 * GIB
