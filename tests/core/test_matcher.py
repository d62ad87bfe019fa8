"""Which preset a process runs: by hand, by its command, and the same answer sample after sample."""

from collections.abc import Mapping
from itertools import count
from random import Random
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.tables import for_each, rows
from vramtui.core.observation.history import History
from vramtui.core.observation.matcher import LEAST_ANSWERS, MatchBasis, Matcher, matches
from vramtui.core.observation.readings import Gpu, GpuState, Host, Process, ProcessKey, Sample
from vramtui.core.schema.models import TransformerModel
from vramtui.core.schema.preset import Match, Preset, PresetFile
from vramtui.core.schema.workload import TrainRun

MODEL = TransformerModel(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, vocab_size=100)


def preset(key: str, *words: str, bundled: bool = True, user: str | None = None) -> PresetFile:
    """A preset that knows its process by all of `words`."""
    match = Match(all=tuple((word,) for word in words), user=user) if words else None
    return PresetFile(
        key=key, path=f"{key}.toml", bundled=bundled, preset=Preset(name=key, model=MODEL, run=TrainRun(), match=match)
    )


def sample(*processes: Process, name: str = "NVIDIA H100") -> Sample:
    gpu = Gpu(index=0, uuid="G", name=name, processes=processes)
    return Sample(taken_at=0.0, source="test", host=Host(name="h"), gpus=(gpu,))


def process(pid: int, command: str | None, user: str | None = "anna", started: float = 0.0) -> Process:
    return Process(pid=pid, type="C", command=command, user=user, name="python", started_at=started)


def key(pid: int, started: float = 0.0) -> ProcessKey:
    return ProcessKey("h", "G", pid, started)


def names(matched: Mapping[ProcessKey, PresetFile]) -> dict[int, str]:
    return {found.pid: one.key for found, one in matched.items()}


def test_every_rule_must_hold() -> None:
    gpu = sample(name="NVIDIA H100").gpus[0]
    job = process(1, "python train.py --llama")
    assert matches(Match(all=(("train.py",),), user="anna", gpu="h100"), gpu, job)
    assert not matches(Match(all=(("train.py",),), user="bo"), gpu, job)
    assert not matches(Match(gpu="A100"), gpu, job)
    assert not matches(Match(), gpu, job)
    assert not matches(Match(none=("vllm",)), gpu, job)
    assert matches(Match(all=(("python",),)), gpu, process(1, None))  # the name stands in for an unknown command
    assert not matches(Match(all=(("end",),)), gpu, process(1, "x" * 5000 + "end"))  # it is searched only so far


@for_each(rows(__file__, "words"))
def test_words_are_found_in_any_case_but_not_within_a_number(match: dict[str, Any], command: str, holds: bool) -> None:
    assert matches(msgspec.convert(match, Match), sample().gpus[0], process(1, command)) == holds


def test_a_choice_by_hand_wins_and_a_persons_own_preset_comes_before_a_bundled_one() -> None:
    own = [preset("a", "train"), preset("z", "train", bundled=False)]
    assert names(Matcher(own).match(sample(process(1, "train")), {})) == {1: "z"}
    found = [preset("auto", "train"), preset("other")]
    moment = sample(process(1, "train"), process(2, "train"), process(3, "serve"))
    chosen = {key(1): None, key(3): "other", key(9): "other"}
    assert names(Matcher(found).match(moment, chosen)) == {2: "auto", 3: "other"}
    # One that is no more matches nothing.
    assert names(Matcher([preset("other")]).match(sample(process(1, "x")), {key(1): "deleted"})) == {}


def test_only_what_is_new_is_looked_for() -> None:
    adapted: list[str] = []

    def adapt(found: PresetFile, command: str, _is_chosen: bool) -> PresetFile:
        adapted.append(command)
        return found

    matcher = Matcher([preset("a", "train"), preset("b", "serve")], adapt)
    moment = sample(*(process(pid, f"train {pid % 5}") for pid in range(100)))
    first = matcher.match(moment, {})
    assert (sorted(adapted), matcher.match(moment, {})) == ([f"train {number}" for number in range(5)], first)
    matcher.match(sample(*moment.gpus[0].processes, process(500, "serve new")), {})
    assert adapted[5:] == ["serve new"]


def test_jobs_of_long_ago_are_forgotten_and_those_that_stay_are_asked_once() -> None:
    adapted: list[str] = []

    def adapt(found: PresetFile, command: str, _is_chosen: bool) -> PresetFile:
        adapted.append(command)
        return found

    matcher = Matcher([preset("a", "train")], adapt)
    stays, comes = process(1, "train and stay"), process(2, "train and go")
    for number in range(LEAST_ANSWERS + 8):
        other = comes if number == 0 else process(2, f"train {number}", started=float(number))
        matcher.match(sample(stays, other), {})
    assert names(matcher.match(sample(stays, comes), {})) == {1: "a", 2: "a"}
    assert (adapted.count("train and go"), adapted.count("train and stay")) == (2, 1)


def test_a_process_that_becomes_another_program_is_matched_again() -> None:
    matcher = Matcher([preset("a", "train"), preset("b", "serve")])
    assert names(matcher.match(sample(process(1, "train")), {})) == {1: "a"}
    assert names(matcher.match(sample(process(1, "serve")), {})) == {1: "b"}
    assert names(matcher.match(sample(process(1, "sleep", started=5.0)), {})) == {}


jobs = st.lists(
    st.builds(
        process,
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
    st.builds(key, st.integers(1, 8), st.sampled_from([0.0, 1.0])), st.sampled_from([None, "none"])
)


@given(st.lists(jobs, min_size=1, max_size=6), by_hand, st.randoms())
def test_remembering_changes_no_answer(
    moments: list[list[Process]], chosen: dict[ProcessKey, str | None], random: Random
) -> None:
    """Sample after sample, in any order of processes and presets, as if each were the first."""
    shuffled = list(PRESETS)
    random.shuffle(shuffled)
    matcher = Matcher(shuffled)
    for processes in moments:
        moment = sample(*processes)
        turned = msgspec.structs.replace(moment.gpus[0], processes=tuple(reversed(processes)))
        expected = Matcher(PRESETS).match(moment, chosen)
        assert matcher.match(moment, chosen) == expected
        assert matcher.match(msgspec.structs.replace(moment, gpus=(turned,)), chosen) == expected


def test_matches_hang_on_who_is_there_and_not_on_figures() -> None:
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


def _gpu(rows: tuple[Process, ...], state: GpuState) -> Gpu:
    return Gpu(index=0, uuid="GPU-0", name="H100", processes=rows, state=state)
