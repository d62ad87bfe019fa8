import threading
import time
from collections.abc import Sequence

import msgspec
import pytest

from tests.app import scenes
from tests.app.fakes import PRESETS, RoundEstimator
from vramtui.core.base.units import GIB
from vramtui.core.observation.history import History
from vramtui.core.observation.probe_messages import Beat, Hello, MemoryCounters, ObservedJob, ProbeDevice
from vramtui.core.observation.readings import JobRank, Process, ProcessKey, Sample
from vramtui.core.observation.snapshot import device_of
from vramtui.core.runs.run import Run
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.settings import AlertRules
from vramtui.monitor.derived_presets import DerivedPresets
from vramtui.monitor.jobs import find_job
from vramtui.monitor.predictor import Predictor
from vramtui.monitor.session import MonitorSession, job_matcher
from vramtui.presets import PresetLibrary

TRAINER = ProcessKey("gpu01", "GPU-0", 4213, scenes.START - 600)


class Shelf:
    problem = ""

    def __init__(self) -> None:
        self.kept: list[Run] = []
        self.last: list[Run] = []

    def keep(self, runs: Sequence[Run]) -> None:
        self.kept += runs

    def finish(self, runs: Sequence[Run], patience: float) -> None:
        assert patience > 0
        self.last += runs


def session_with(**options: object) -> MonitorSession:
    session = MonitorSession(predictor=Predictor(RoundEstimator()), **options)  # type: ignore[arg-type]  # passed on
    session.take_presets(PRESETS)
    return session


def test_a_sample_is_in_history_matches_and_predictions_also_before_presets() -> None:
    session = session_with()
    session.ingest(scenes.usual(trained=30 * GIB))
    session.ingest(scenes.usual(1, trained=20 * GIB))
    assert session.sample == scenes.usual(1, trained=20 * GIB)
    assert {key.pid: found.key for key, found in session.matched.items()} == {4213: PRESETS[0].key}
    assert session.peaks()[TRAINER].bytes == 30 * GIB
    (prediction,) = session.predictions().values()
    assert (prediction.preset, prediction.workload) == (PRESETS[0].key, PRESETS[0].preset.workload)
    assert session.recorded_tick().predictions[TRAINER] is prediction
    assert session.estimates().keys() == {TRAINER}
    (holding,) = [one for one in session.snapshot().holdings if one.preset]
    assert (holding.key, holding.peak and holding.peak.bytes) == (TRAINER, 30 * GIB)
    session = MonitorSession(predictor=Predictor(RoundEstimator()))
    session.ingest(scenes.usual())
    assert not session.matched
    session.take_presets(PRESETS)
    assert session.matched.keys() == {TRAINER}
    session.assign(TRAINER, None)
    assert not session.matched
    session.assign(TRAINER, None, automatic=True)
    assert session.matched.keys() == {TRAINER}
    session = session_with()
    session.ingest(scenes.usual(trained=70 * GIB))
    session.history = History()
    session.history.add(scenes.usual(trained=10 * GIB))
    session.ingest(scenes.usual(1, trained=20 * GIB))
    assert session.peaks()[TRAINER].bytes == 20 * GIB
    session = session_with()
    assert (session.peaks(), session.predictions()) == ({}, {})
    with pytest.raises(ValueError, match="no sample"):
        session.recorded_tick()
    session = MonitorSession(derived=DerivedPresets(derives, wait=True))
    session.ingest(scenes.usual())
    assert not session.matched


def test_a_variant_stands_beside_what_runs() -> None:
    shelf = Shelf()
    session = session_with(alert_rules=AlertRules(after=0.0), run_writer=shelf)
    session.ingest(scenes.usual(trained=50 * GIB))
    before, recorded = session.estimates()[TRAINER], session.predictions()
    run = msgspec.structs.replace(PRESETS[0].preset.run, batch_size=1)
    session.variants[PRESETS[0].key] = msgspec.structs.replace(PRESETS[0].preset.workload, run=run)
    tried = session.predictor.ask(session.workload(PRESETS[0]), device_of(scenes.usual().gpus[0])).estimate
    assert tried.process < 50 * GIB < before.process, "a job that holds more than what is tried out"
    for at in range(1, 4):
        session.ingest(scenes.usual(at, trained=50 * GIB))
    assert session.estimates() == {TRAINER: before}
    assert session.predictions() == recorded
    assert session.alerts == ()
    assert [holding.estimate for holding in session.snapshot().holdings if holding.preset] == [before]
    assert {run.predicted.process for run in shelf.kept} == {before.process}


def test_alerts_are_new_once() -> None:
    session = session_with(alert_rules=AlertRules(after=0.0))
    quiet = session_with()
    needed = session.estimate(PRESETS[0], device_of(scenes.usual().gpus[0]))
    for at in range(4):
        session.ingest(scenes.usual(at, trained=needed.process + 9 * GIB))
        quiet.ingest(scenes.usual(at, trained=needed.process + 9 * GIB))
        if at == 0:
            first = session.new_alerts
    assert [alert.kind for alert in first] == ["over"]
    assert session.new_alerts == ()
    assert {alert.kind for alert in session.alerts} >= {"over"}
    assert (quiet.alerts, quiet.new_alerts) == ((), ())
    session.restart_alerts()
    assert session.alerts == ()
    session.ingest(scenes.usual(9, trained=needed.process + 9 * GIB))
    assert session.new_alerts == ()
    assert session.alerts


def test_runs_go_to_whoever_keeps_them_with_what_jobs_report() -> None:
    shelf = Shelf()
    session = session_with(run_writer=shelf)
    session.ingest(scenes.usual())
    assert [(run.pid, run.preset, run.ending) for run in shelf.kept] == [(4213, PRESETS[0].key, "running")]
    session.finish_runs(1.0)
    assert [run.key for run in shelf.last] == [shelf.kept[0].key]
    device = ProbeDevice(index=0, name="A100", total_memory=80 * GIB, capability=(8, 0), uuid="0")
    job = ObservedJob(pid=4213).heard(Hello(v=1, pid=4213, at=1.0, torch="2.9.0", devices=(device,)))
    counters = MemoryCounters(index=0, allocated_peak=50 * GIB, reserved_peak=57 * GIB)
    job = job.heard(Beat(v=1, pid=4213, at=2.0, step=1, devices=(counters,)))
    shelf = Shelf()
    session = session_with(jobs=lambda: (job,), run_writer=shelf)
    session.ingest(scenes.usual(trained=58 * GIB))
    (run,) = shelf.kept
    assert (run.peak_how, run.observed.allocated, run.observed.context) == ("probe", 50 * GIB, GIB)
    (holding,) = [one for one in session.snapshot().holdings if one.key == TRAINER]
    assert holding.comparison is not None
    assert session.recorded_tick().jobs == (job,)


def test_a_runs_own_processes_have_its_presets_prediction() -> None:
    for jobs, preset, matched in (
        ((ObservedJob(pid=4213),), PRESETS[0], {TRAINER}),
        ((ObservedJob(pid=4213),), None, set()),
        ((), PRESETS[0], set()),
    ):
        session = MonitorSession(predictor=Predictor(RoundEstimator()))
        session.match_by(job_matcher(lambda jobs=jobs: jobs, preset))  # type: ignore[misc]  # bound for this round
        session.ingest(scenes.usual())
        assert session.predictions().keys() == matched


BATCH = ("run.batch_size",)


def derives(pid: int, command: str) -> PresetFile | None:
    del pid
    found = PRESETS[1] if command.startswith("vllm") else PRESETS[0] if command.startswith("python") else None
    return found and msgspec.structs.replace(found, key=f"derived:{found.key}", derived="somewhere", assumed=BATCH)


def test_a_process_without_a_preset_has_one_derived() -> None:
    asked = []

    def derive(pid: int, command: str) -> PresetFile | None:
        asked.append(pid)
        return derives(pid, command)

    session = session_with(alert_rules=AlertRules(after=0.0), derived=DerivedPresets(derive, wait=True))
    session.ingest(scenes.usual(trained=30 * GIB))
    found = {key.pid: preset.key for key, preset in session.matched.items()}
    assert found == {4213: PRESETS[0].key, 5120: f"derived:{PRESETS[1].key}"}
    assert 4213 not in asked, "a preset's own [match] goes first"
    for at in range(3):
        session.ingest(scenes.usual(at, trained=30 * GIB))
    assert asked.count(977) == asked.count(5120) == 1, "each is looked into once"
    assert session.estimates().keys() == session.matched.keys()
    assert [key.pid for key, found in session.stated_estimates().items() if found] == [4213], "a guess raises no alert"
    assert [key.pid for key, found in session.estimates().items() if found] == [4213], "nor is it a prediction"
    assert session.predictions().keys() == {TRAINER}
    assert not any(one.comparison for one in session.snapshot().holdings if one.key.pid == 5120)
    server = next(key for key in session.matched if key.pid == 5120)
    session.assign(server, None)
    assert server not in session.matched, "nobody's preset, by hand"
    session.assign(server, None, automatic=True)
    assert server in session.matched


@pytest.mark.parametrize(("command", "known"), [(f"{scenes.TRAIN} --config sft.yaml", True), (scenes.TRAIN, False)])
def test_the_file_of_a_matched_job_says_more_than_its_words(command: str, *, known: bool) -> None:
    """Its adapters stand in a YAML file, and the words of its command line fit a preset that trains all weights."""

    def derive(pid: int, command: str) -> PresetFile | None:
        return msgspec.structs.replace(PRESETS[0], key="derived:8b", derived=command) if pid == 4213 else None

    session = session_with(derived=DerivedPresets(derive, wait=True))
    job = scenes.process(4213, 30 * GIB, command)
    session.ingest(scenes.sample(scenes.gpu(0, job)))
    assert {found.key for found in session.matched.values()} == {"derived:8b" if known else PRESETS[0].key}
    session.assign(TRAINER, PRESETS[0].key)
    assert {found.key for found in session.matched.values()} == {PRESETS[0].key}, "a person goes before a file"


def test_a_guess_is_in_no_history_and_a_job_refutes_it() -> None:
    shelf = Shelf()
    session = session_with(run_writer=shelf, derived=DerivedPresets(derives, wait=True))
    session.ingest(scenes.usual(trained=30 * GIB))
    assert {run.pid for run in shelf.kept} == {4213}
    server = next(key for key in session.matched if key.pid == 5120)
    device = device_of(scenes.usual().gpus[1])
    guess = session.guesses.range_of(session.matched[server], device)
    assert guess.lowest < 20 * GIB < guess.highest


def test_what_takes_its_time_is_derived_in_the_background() -> None:
    goes_on, done = threading.Event(), threading.Event()

    def derive(pid: int, command: str) -> PresetFile | None:
        goes_on.wait(30)
        if pid == 5120:
            done.set()
        if pid == 977:
            raise RuntimeError("a file like no other")
        return derives(pid, command)

    derived = DerivedPresets(derive)
    sample = scenes.usual()
    assert derived.with_derived(sample, {}, {TRAINER: None}) == {}
    session = session_with(derived=derived)
    session.ingest(sample)
    notebook = next(one for one in sample.gpus[0].processes if one.pid == 977)
    assert session.why_unmatched(notebook) == "jupyter: looking for its model"
    goes_on.set()
    assert done.wait(30)
    for _ in range(300):
        found = derived.with_derived(sample, {}, {TRAINER: None})
        if found:
            break
        time.sleep(0.01)
    assert {key.pid for key in found} == {5120}
    assert derived.with_derived(sample, {}, {}).keys() >= found.keys()


def test_presets_of_who_stays_stay_and_of_who_comes_or_goes_are_known_at_once() -> None:
    session = session_with(derived=DerivedPresets(derives, wait=True))
    usual = scenes.usual()
    card = next(gpu for gpu in usual.gpus if any(process.pid == 5120 for process in gpu.processes))
    server = next(process for process in card.processes if process.pid == 5120)
    assert server.command is not None

    def with_processes(at: float, *processes: Process) -> Sample:
        gpus = tuple(msgspec.structs.replace(gpu, processes=processes) if gpu is card else gpu for gpu in usual.gpus)
        return msgspec.structs.replace(usual, taken_at=usual.taken_at + at, gpus=gpus)

    def pids() -> set[int]:
        return {key.pid for key in session.matched}

    session.ingest(with_processes(1, server))
    first = session.matched
    session.ingest(with_processes(2, msgspec.structs.replace(server, used_memory=GIB)))
    assert session.matched == first, "memory says nothing of who it is"
    stranger = msgspec.structs.replace(server, pid=6000, command="sleep 1")
    session.ingest(with_processes(3, server, stranger))
    assert pids() == {4213, 5120}
    session.ingest(with_processes(4, server, msgspec.structs.replace(stranger, command=server.command)))
    assert pids() == {4213, 5120, 6000}
    session.ingest(with_processes(5, stranger))
    assert pids() == {4213}


def reporting(pid: int, *devices: ProbeDevice) -> ObservedJob:
    job = ObservedJob(pid=pid).heard(Hello(v=1, pid=pid, at=1.0, torch="2.0.1", devices=devices))
    counters = tuple(MemoryCounters(index=one.index, allocated_peak=9 * GIB, reserved_peak=9 * GIB) for one in devices)
    return job.heard(Beat(v=1, pid=pid, at=2.0, step=1, devices=counters))


def test_a_uuid_that_no_card_has_falls_back_to_pid_and_index() -> None:
    sample = scenes.usual(trained=58 * GIB)
    card, other = sample.gpus
    unknown = ProbeDevice(index=0, name="A100", total_memory=80 * GIB, capability=(8, 0))
    hidden = msgspec.structs.replace(unknown, uuid="b0b0b0b0-0000-0000-0000-000000000000")
    for device in (unknown, hidden):  # an old PyTorch; another driver's name for it
        job = reporting(5120, device)
        session = session_with(jobs=lambda job=job: (job,))
        assert session.jobs() == (job,), "nothing is known of the cards yet"
        session.ingest(sample)
        server = other.processes[0]
        assert find_job(session.jobs, server.pid, other.uuid), "its only device is the one card that shows its pid"
        assert find_job(session.jobs, server.pid, card.uuid) is None
    both = msgspec.structs.replace(other, processes=(*other.processes, *card.processes[:1]))
    several = session_with(jobs=lambda: (reporting(4213, unknown, msgspec.structs.replace(unknown, index=1)),))
    several.ingest(msgspec.structs.replace(sample, gpus=(card, both)))
    (job,) = several.jobs()
    assert [device.uuid for device in job.hello.devices] == [card.uuid, other.uuid], "of several by their index"


FSDP = "python finetune.py --model meta-llama/Llama-3.1-8B --fsdp full_shard --per_device_train_batch_size 2"


@pytest.mark.parametrize(
    ("rank", "command", "name", "by_hand", "data", "batch"),
    [
        (True, FSDP, "Llama 3.1 8B · FSDP2 over 4 (torchrun)", None, 4, 2),
        (False, FSDP, "Llama 3.1 8B · FSDP2 over 4", None, 4, 2),  # counted: the environment is not readable
        (True, "python finetune.py --per_device_train_batch_size 2", "Llama 3.1 8B · FSDP2 over 4 (torchrun)",
         "llama-3.1-8b-fsdp", 4, 2),
        (False, "python finetune.py --batch-size 6 --seq-len 512", "Llama 3.1 8B · FSDP2 over 4",
         "llama-3.1-8b-fsdp", 4, 6),
        (True, "python finetune.py --per_device_train_batch_size 3", None, "llama-3.1-8b-lora", 4, 3),
    ],
)  # fmt: skip
def test_a_job_is_shared_over_its_own_ranks_and_one_choice_is_for_all(
    rank: bool, command: str, name: str | None, by_hand: str | None, data: int, batch: int
) -> None:
    gpus = []
    for at in range(4):
        place = JobRank(job="torchrun:29500 on gpu01", rank=at, size=4, launcher="torchrun") if rank else None
        own = msgspec.structs.replace(scenes.process(10 + at, 40 * GIB, command), rank=place)
        later = scenes.process(20 + at, GIB, command, started_at=scenes.START + 3600)
        gpus.append(scenes.gpu(at, own, *([later] if at == 0 else [])))
    session = MonitorSession(predictor=Predictor(RoundEstimator()))
    session.take_presets((), PresetLibrary())
    session.ingest(scenes.sample(*gpus))
    keys = [ProcessKey("gpu01", f"GPU-{at}", 10 + at, gpus[at].processes[0].started_at) for at in range(4)]
    if by_hand is not None:
        session.assign(keys[2], by_hand)
        assert set(session.by_hand) == set(keys)
    found = [session.matched[key] for key in keys]
    assert all(one.preset.workload == found[0].preset.workload for one in found)
    assert (found[0].preset.parallel.data, found[0].preset.workload.run.batch_size) == (data, batch)
    assert name is None or found[0].preset.name == name
    assert by_hand is None or not found[0].assumed
    assert "run.batch_size" in {known.key for known in found[0].known}
    if by_hand is not None:
        session.assign(keys[0], None, automatic=True)
        assert not session.by_hand
