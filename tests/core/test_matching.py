"""Which preset a process runs: by hand, by its command, and the same answer sample after sample."""

from collections.abc import Callable, Mapping
from random import Random
from unittest.mock import patch

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from vramtui.core.observation import matcher as matching
from vramtui.core.observation.linear_regex import searcher
from vramtui.core.observation.matcher import Matcher, matches
from vramtui.core.observation.readings import Gpu, Host, Process, ProcessKey, Sample
from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.core.schema.preset import Match, Preset, PresetFile
from vramtui.core.schema.workload import TrainRun

MODEL = TransformerModel(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, vocab_size=100)


def preset(key: str, *, bundled: bool = True, **rules: str) -> PresetFile:
    match = Match(**rules) if rules else None
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
    assert matches(Match(command=r"train\.py", user="^anna$", gpu="H100"), gpu, job)
    assert not matches(Match(command=r"train\.py", user="^bo$"), gpu, job)
    assert not matches(Match(gpu="A100"), gpu, job)
    assert not matches(Match(), gpu, job)


def test_the_name_stands_in_for_an_unknown_command() -> None:
    assert matches(Match(command="^python$"), sample().gpus[0], process(1, None))


def test_a_persons_own_preset_comes_before_a_bundled_one() -> None:
    found = [preset("a", command="train"), preset("z", bundled=False, command="train")]
    assert names(Matcher(found).match(sample(process(1, "train")), {})) == {1: "z"}


def test_a_choice_by_hand_wins() -> None:
    found = [preset("auto", command="train"), preset("other")]
    moment = sample(process(1, "train"), process(2, "train"), process(3, "serve"))
    chosen = {key(1): None, key(3): "other", key(9): "other"}
    assert names(Matcher(found).match(moment, chosen)) == {2: "auto", 3: "other"}


def test_a_preset_that_is_no_more_matches_nothing() -> None:
    assert names(Matcher([preset("other")]).match(sample(process(1, "x")), {key(1): "deleted"})) == {}


def test_only_what_is_new_is_searched() -> None:
    matcher = Matcher([preset("a", command="train"), preset("b", command="serve")])
    moment = sample(*(process(pid, f"train {pid % 5}") for pid in range(100)))
    with patch.object(matching, "searcher", wraps=searcher) as searched:
        first = matcher.match(moment, {})
        made = searched.call_count
        assert 0 < made <= 10
        assert matcher.match(moment, {}) == first
        assert searched.call_count == made
        matcher.match(sample(*moment.gpus[0].processes, process(500, "serve new")), {})
        assert searched.call_count == made + 1  # the words of the other pattern are not in it


def test_a_process_that_becomes_another_program_is_matched_again() -> None:
    matcher = Matcher([preset("a", command="train"), preset("b", command="serve")])
    assert names(matcher.match(sample(process(1, "train")), {})) == {1: "a"}
    assert names(matcher.match(sample(process(1, "serve")), {})) == {1: "b"}
    assert names(matcher.match(sample(process(1, "sleep", started=5.0)), {})) == {}


def test_a_hostile_command_is_searched_only_so_far() -> None:
    assert not matches(Match(command="end$"), sample().gpus[0], process(1, "x" * 5000 + "end"))


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
    preset("a", command="train a"),
    preset("b", command="train", user="bo"),
    preset("mine", bundled=False, command="serve"),
    preset("none"),
)
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


@given(st.text("kKis\u0131\u017fS\u0130\u212a", max_size=6))
def test_letters_beyond_ascii_hide_no_word(text: str) -> None:
    assert matches(Match(command="(?i)kis"), sample().gpus[0], process(1, text)) == searcher("(?i)kis")(
        text or "python"
    )


def test_a_command_line_beyond_ascii_is_searched_for_what_it_may_hold_alone() -> None:
    tried: list[str] = []

    def counting(pattern: str) -> Callable[[str], bool]:
        tried.append(pattern)
        return searcher(pattern)

    with patch.object(matching, "searcher", counting):
        known = Matcher([preset("a", command="llama"), preset("b", command="qwen")])
        assert not known.match(sample(process(1, "python projets/josé/train.py")), {})
        assert names(known.match(sample(process(2, "python projets/josé/llama.py")), {})) == {2: "a"}
    assert tried == ["llama"]


def test_command_lines_that_take_long_to_search_wait_for_those_that_do_not() -> None:
    patterns = [preset(f"p{number}", command=f"train.*lora.*{number}b") for number in range(20)]
    known = Matcher(patterns, at_once=1 << 14)
    hostile = [
        process(pid, f"{pid} " + "train lora 7b "[:-1] * 280 + "x0b1b2b3b4b5b6b8b9b"[::-1]) for pid in range(2, 9)
    ]
    seen = sample(*hostile, process(1, "python train.py --lora --model 7b"))
    searched: list[int] = []

    def counting(pattern: str) -> Callable[[str], bool]:
        def search(text: str) -> bool:
            searched.append(len(text))
            return searcher(pattern)(text)

        return search

    with patch.object(matching, "searcher", counting):
        assert names(known.match(seen, {}))[1] == "p7"
        for _ in range(60):
            spent = len(searched)
            found = known.match(seen, {})
            assert sum(searched[spent:]) <= (1 << 14) + matching.SEARCHED
    assert found == Matcher(patterns).match(seen, {})
    assert known.match(seen, {}) is found
