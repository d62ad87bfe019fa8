from collections.abc import Mapping
from itertools import count
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import followed
from tests.tables import for_each, rows
from vramtui.core.observation import history
from vramtui.core.observation.history import FastSample, History, Peak, TrackTable
from vramtui.core.observation.matcher import LEAST_ANSWERS, MatchBasis, Matcher, matches
from vramtui.core.observation.readings import Absence, Gpu, GpuState, Host, Process, ProcessKey, Sample
from vramtui.core.schema.models import TransformerModel
from vramtui.core.schema.preset import Match, Preset, PresetFile
from vramtui.core.schema.workload import TrainRun

HOST = Host(name="h")


def process(pid: int, used: int | None = 1, started: float | None = 0.0) -> Process:
    return Process(pid=pid, type="C", used_memory=used, started_at=started)


def sample(at: float, *processes: Process, **gpu: object) -> Sample:
    card = Gpu(index=0, uuid="G", name="card", processes=processes, **gpu)  # type: ignore[arg-type]  # msgspec checks
    return Sample(taken_at=at, source="test", host=HOST, gpus=(card,))


def key(pid: int, started: float | None = 0.0) -> ProcessKey:
    return ProcessKey("h", "G", pid, started)


def test_a_process_is_the_same_one_until_its_pid_is_reused() -> None:
    seen = followed(*(sample(at, process(1, used)) for at, used in enumerate((5, 9, 3))), sample(3))
    track = seen.tracks[key(1)]
    assert (track.peak, track.gone_at, list(seen.exited(0))) == (Peak(bytes=9, at=1, interval=1.0), 3, [track])
    assert not list(seen.exited(3.5))
    seen = followed(sample(0, process(1, 100, started=10.0)), sample(1, process(1, 2, started=20.0)))
    assert seen.tracks[key(1, 10.0)].gone_at == 1
    fresh = seen.tracks[key(1, 20.0)]
    assert fresh.gone_at is None
    assert (fresh.peak, dict(seen.here("h", "G"))) == (Peak(bytes=2, at=1, interval=1.0), {1: fresh})
    seen = followed(sample(0, process(1, 8)), sample(1), sample(2, process(1, 4)))
    assert seen.tracks[key(1)].gone_at is None
    assert seen.tracks[key(1)].peak == Peak(bytes=8, at=0, interval=1.0)
    assert not list(seen.exited(0))
    track = TrackTable(("h", "G")).append(process(1), 0.0)
    track.add(0.0, 10)
    for told, peak in ((9, Peak(bytes=10, at=0.0)), (11, Peak(bytes=11, at=1.0, how="accounting"))):
        track.note_peak(Peak(bytes=told, at=1.0, how="accounting"))
        assert track.peak == peak


@pytest.mark.parametrize(
    "silence", [{"state": "lost"}, {"state": "failed"}, {"absent": {"processes": Absence.NO_PERMISSION}}]
)
def test_nothing_is_concluded_from_a_gpu_that_does_not_answer(silence: dict[str, object]) -> None:
    assert followed(sample(0, process(1)), sample(1, **silence)).tracks[key(1)].gone_at is None


def test_the_oldest_exited_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "KEEP_EXITED", 3)
    seen = followed(*(sample(at, process(at)) for at in range(10)), sample(10))
    assert [track.key.pid for track in seen.exited(0)] == [9, 8, 7]
    assert set(seen.tracks) == {key(9), key(8), key(7)}
    monkeypatch.setattr(history, "POINTS", 1000)
    monkeypatch.setattr(history, "SERIES_LEAST", 10)
    seen = followed(*(sample(at, *(process(pid, at + 1) for pid in range(50))) for at in range(200)))
    assert max(len(track.values) for track in seen.tracks.values()) <= 20
    assert all(track.peak == Peak(bytes=200, at=199, interval=1.0) for track in seen.tracks.values())


amounts = st.lists(st.one_of(st.none(), st.integers(0, 2**50)), min_size=1, max_size=400)


@given(amounts, st.integers(2, 40))
def test_a_series_keeps_its_peak_and_its_order_however_short(values: list[int | None], limit: int) -> None:
    track = TrackTable(("h", "G")).append(process(1), 0.0)
    for at, used in enumerate(values):
        track.add(float(at), used, limit)
    known = [used for used in values if used is not None]
    assert len(track.values) == len(track.times) <= limit
    assert (list(track.times), track.last_seen) == (sorted(track.times), len(values) - 1)
    if known:
        assert track.peak.bytes == max(known) == max(track.values)
    else:
        assert track.peak is None
        assert not track.values


worlds = st.lists(
    st.one_of(st.none(), st.dictionaries(st.integers(1, 6), st.integers(0, 99), max_size=6)), min_size=1, max_size=30
)


@given(worlds)
def test_what_is_here_is_what_was_listed_last(moments: list[dict[int, int] | None]) -> None:
    seen = History()
    listed: dict[int, int] = {}
    most: dict[int, int] = {}
    for at, moment in enumerate(moments):
        if moment is None:
            seen.add(sample(at, state="lost"))
            continue
        seen.add(sample(at, *(process(pid, used) for pid, used in moment.items())))
        listed = moment
        most |= {pid: max(used, most.get(pid, 0)) for pid, used in moment.items()}
    assert {pid: track.process.used_memory for pid, track in seen.here("h", "G").items()} == listed
    assert {track.key.pid: track.peak.bytes for track in seen.tracks.values() if track.peak} == most
    gone = {track.key.pid for track in seen.exited(0)}
    assert gone == most.keys() - listed.keys()
    assert all((track.gone_at is None) == (track.key.pid in listed) for track in seen.tracks.values())


def looks(*points: tuple[float, int], pid: int = 1, started: float | None = 0.0) -> list[FastSample]:
    return [FastSample(key(pid, started), at, used, 0.1) for at, used in points]


def test_close_looks_belong_to_the_process_that_was_looked_at() -> None:
    seen = followed(sample(0, process(1, 5)))
    now = sample(1, process(1, 5))
    seen.add_looks(looks((0.3, 5), (0.4, 90), (0.5, 90), (0.6, 5)), now)
    seen.add(now)
    track = seen.tracks[key(1)]
    assert track.peak == Peak(bytes=90, at=0.4, interval=0.1)
    assert list(zip(track.times, track.values, strict=True)) == [(0.0, 5), (0.4, 90), (0.6, 5)]
    assert (track.looked or ())[:2] == (0.3, 0.6)
    seen = followed(sample(0, process(1, 5, started=10.0)))
    now = sample(1, process(1, 6, started=20.0))
    seen.add_looks(looks((0.5, 90), started=10.0) + looks((0.6, 91), started=20.0) + looks((0.6, 9), pid=7), now)
    seen.add(now)
    assert [track.peak and track.peak.bytes for track in seen.tracks.values()] == [5, 6]
    seen = followed(sample(0, process(1, 5)))
    now = sample(1)
    seen.add_looks(looks((0.5, 90)), now)
    seen.add(now)
    track = seen.tracks[key(1)]
    assert (track.peak, track.gone_at) == (Peak(bytes=90, at=0.5, interval=0.1), 1)
    seen.add_looks(looks((1.5, 99)), sample(2))
    assert (track.peak, track.gone_at) == (Peak(bytes=90, at=0.5, interval=0.1), 1)
    seen = followed(sample(0, process(1, 5)), sample(1, process(1, 5)))
    seen.add_looks(looks((0.5, 90)), sample(2, process(1, 5)))
    assert seen.tracks[key(1)].peak == Peak(bytes=5, at=0, interval=1.0)
    seen.add_looks(looks((2.1, 5), (2.2, 5), (2.9, 5), (7.0, 5), (7.1, 5)), sample(8, process(1, 5)))
    assert (seen.tracks[key(1)].looked or ())[:2] == (7.0, 7.1)
    seen = History()
    assert seen.pace("h") is None
    for at in (0.0, 1.02, 3.0):
        seen.add(sample(at, process(1)))
    assert seen.pace("h") == 2.0
    seen.add(sample(3.0, process(1)))  # the same moment again
    assert seen.pace("h") == 2.0


BACK = 3 * 3600.0  # seconds by which somebody sets the clock back


def test_a_clock_that_is_set_back_takes_what_was_seen_with_it_and_keeps_the_order() -> None:
    seen = History()
    for at, used in ((90_000.0, 5), (90_001.0, 9), (90_002.0, 4)):
        seen.add(sample(at, process(1, used), process(2, 1), utilization=used))
    seen.add(sample(90_003.0, process(1, 4), utilization=7))
    now = 90_004.0 - BACK
    seen.add(sample(now, process(1, 6), utilization=8))
    track = seen.tracks[key(1)]
    assert (list(track.times), list(track.values)) == ([now - 4, now - 3, now - 2, now], [5, 9, 4, 6])
    assert (track.first_seen, track.last_seen) == (now - 4, now)
    assert track.peak == Peak(bytes=9, at=now - 3, interval=1.0)
    assert list(seen.gauges["G"]["utilization"].times) == [now - 4, now - 3, now - 2, now - 1, now]
    assert (seen.pace("h"), seen.grown("h", "G")) == (1.0, 2)
    assert [(one.key.pid, one.gone_at) for one in seen.exited(now - 30)] == [(2, now - 1)]
    assert not list(seen.exited(now))
    seen = History()
    at = 90_000.0
    for jump in (0.0, -BACK, 5 * 3600.0, -400 * 86_400.0, 0.5, -2.5, 400 * 86_400.0):
        at += jump
        for used in (3, 5, 4):
            at += 1.0
            seen.add(sample(at, process(1, used + int(jump) % 7), utilization=used))
    track = seen.tracks[key(1)]
    for times in (track.times, seen.gauges["G"]["utilization"].times):
        assert list(times) == sorted(set(times))
    assert track.first_seen <= track.times[0]
    assert track.last_seen == at
    assert track.first_seen <= track.peak.at <= at
    seen = History()
    for name in ("h", "other"):
        seen.add(msgspec.structs.replace(sample(90_000.0, process(1)), host=Host(name=name)))
    seen.add(sample(90_001.0 - BACK, process(1)))
    assert seen.tracks[key(1)].last_seen < 90_000.0
    assert seen.tracks[ProcessKey("other", "G", 1, 0.0)].last_seen == 90_000.0


MODEL = TransformerModel(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, vocab_size=100)


def preset(key: str, *words: str, bundled: bool = True, user: str | None = None) -> PresetFile:
    match = Match(all=tuple((word,) for word in words), user=user) if words else None
    return PresetFile(
        key=key, path=f"{key}.toml", bundled=bundled, preset=Preset(name=key, model=MODEL, run=TrainRun(), match=match)
    )


def sampled(*processes: Process, name: str = "NVIDIA H100") -> Sample:
    gpu = Gpu(index=0, uuid="G", name=name, processes=processes)
    return Sample(taken_at=0.0, source="test", host=Host(name="h"), gpus=(gpu,))


def a_process(pid: int, command: str | None, user: str | None = "anna", started: float = 0.0) -> Process:
    return Process(pid=pid, type="C", command=command, user=user, name="python", started_at=started)


def key_of(pid: int, started: float = 0.0) -> ProcessKey:
    return ProcessKey("h", "G", pid, started)


def names(matched: Mapping[ProcessKey, PresetFile]) -> dict[int, str]:
    return {found.pid: one.key for found, one in matched.items()}


def test_every_rule_must_hold_and_a_choice_by_hand_wins() -> None:
    gpu = sampled(name="NVIDIA H100").gpus[0]
    job = a_process(1, "python train.py --llama")
    assert matches(Match(all=(("train.py",),), user="anna", gpu="h100"), gpu, job)
    assert not matches(Match(all=(("train.py",),), user="bo"), gpu, job)
    assert not matches(Match(gpu="A100"), gpu, job)
    assert not matches(Match(), gpu, job)
    assert not matches(Match(none=("vllm",)), gpu, job)
    assert matches(Match(all=(("python",),)), gpu, a_process(1, None))  # the name stands in for an unknown command
    assert not matches(Match(all=(("end",),)), gpu, a_process(1, "x" * 5000 + "end"))  # it is searched only so far
    own = [preset("a", "train"), preset("z", "train", bundled=False)]
    assert names(Matcher(own).match(sampled(a_process(1, "train")), {})) == {1: "z"}
    found = [preset("auto", "train"), preset("other")]
    moment = sampled(a_process(1, "train"), a_process(2, "train"), a_process(3, "serve"))
    chosen = {key_of(1): None, key_of(3): "other", key_of(9): "other"}
    assert names(Matcher(found).match(moment, chosen)) == {2: "auto", 3: "other"}
    # One that is no more matches nothing.
    assert names(Matcher([preset("other")]).match(sampled(a_process(1, "x")), {key_of(1): "deleted"})) == {}


@for_each(rows(__file__, "words"))
def test_words_are_found_in_any_case_but_not_within_a_number(match: dict[str, Any], command: str, holds: bool) -> None:
    assert matches(msgspec.convert(match, Match), sampled().gpus[0], a_process(1, command)) == holds


def test_only_what_is_new_is_looked_for_also_a_process_that_becomes_another_program() -> None:
    adapted: list[str] = []

    def adapt(found: PresetFile, command: str, _is_chosen: bool) -> PresetFile:
        adapted.append(command)
        return found

    matcher = Matcher([preset("a", "train"), preset("b", "serve")], adapt)
    moment = sampled(*(a_process(pid, f"train {pid % 5}") for pid in range(100)))
    first = matcher.match(moment, {})
    assert (sorted(adapted), matcher.match(moment, {})) == ([f"train {number}" for number in range(5)], first)
    matcher.match(sampled(*moment.gpus[0].processes, a_process(500, "serve new")), {})
    assert adapted[5:] == ["serve new"]
    matcher = Matcher([preset("a", "train"), preset("b", "serve")])
    assert names(matcher.match(sampled(a_process(1, "train")), {})) == {1: "a"}
    assert names(matcher.match(sampled(a_process(1, "serve")), {})) == {1: "b"}
    assert names(matcher.match(sampled(a_process(1, "sleep", started=5.0)), {})) == {}


def test_remembered_matches_hang_on_who_is_there_and_are_forgotten_in_time() -> None:
    adapted: list[str] = []

    def adapt(found: PresetFile, command: str, _is_chosen: bool) -> PresetFile:
        adapted.append(command)
        return found

    matcher = Matcher([preset("a", "train")], adapt)
    stays, comes = a_process(1, "train and stay"), a_process(2, "train and go")
    for number in range(LEAST_ANSWERS + 8):
        other = comes if number == 0 else a_process(2, f"train {number}", started=float(number))
        matcher.match(sampled(stays, other), {})
    assert names(matcher.match(sampled(stays, comes), {})) == {1: "a", 2: "a"}
    assert (adapted.count("train and go"), adapted.count("train and stay")) == (2, 1)
    basis, history = MatchBasis(), History()

    def changes(*rows: Process, state: GpuState = "ok") -> bool:
        sample = Sample(taken_at=next(times), source="nvml", host=Host(name="gpu01"), gpus=(_gpu(rows, state),))
        history.add(sample)
        return basis.has_changed(sample, history, {})

    times = count(1.0)
    one = Process(pid=1, type="C", used_memory=5, started_at=0.5)
    assert changes(one)
    assert not changes(msgspec.structs.replace(one, used_memory=9, sm_percent=4))
    assert changes(msgspec.structs.replace(one, command="python train.py"))
    assert not changes(msgspec.structs.replace(one, command="python train.py"))
    assert changes(msgspec.structs.replace(one, command="python train.py", torch="2.13.0"))
    assert changes(Process(pid=2, type="C", started_at=0.5))
    assert changes(Process(pid=2, type="C", started_at=0.9))  # a pid that is another's by now
    assert changes()
    assert not changes()
    assert changes(state="lost")
    assert changes(state="lost")  # what it lists may change without a trace


jobs = st.lists(
    st.builds(
        a_process,
        st.integers(1, 8),
        st.sampled_from(["train a", "train b", "serve", None]),
        st.sampled_from(["anna", "bo", None]),
        st.sampled_from([0.0, 1.0]),
    ),
    unique_by=lambda entry: entry.pid,
    max_size=8,
)
PRESETS = (
    preset("a", "train a"), preset("b", "train", user="bo"), preset("mine", "serve", bundled=False), preset("none"),
)  # fmt: skip
by_hand = st.dictionaries(
    st.builds(key_of, st.integers(1, 8), st.sampled_from([0.0, 1.0])), st.sampled_from([None, "none"])
)


@given(st.lists(jobs, min_size=1, max_size=6), by_hand, st.randoms())
def test_same_if_remembered(moments: list[list[Process]], chosen: dict[ProcessKey, str | None], random: Random) -> None:
    shuffled = list(PRESETS)
    random.shuffle(shuffled)
    matcher = Matcher(shuffled)
    for processes in moments:
        moment = sampled(*processes)
        turned = msgspec.structs.replace(moment.gpus[0], processes=tuple(reversed(processes)))
        expected = Matcher(PRESETS).match(moment, chosen)
        assert matcher.match(moment, chosen) == expected
        assert matcher.match(msgspec.structs.replace(moment, gpus=(turned,)), chosen) == expected


def _gpu(rows: tuple[Process, ...], state: GpuState) -> Gpu:
    return Gpu(index=0, uuid="GPU-0", name="H100", processes=rows, state=state)
