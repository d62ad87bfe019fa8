"""What others' samples say beyond what a host has is left out, and told."""

import msgspec

from vramtui.core.observation.bounded_samples import MOST_PROBLEMS, bounded
from vramtui.core.observation.readings import Absence, Gpu, Host, Memory, Problem, Process, Sample

MEGABYTE = 1 << 20


def sample(*gpus: Gpu, problems: tuple[Problem, ...] = ()) -> Sample:
    return Sample(taken_at=1.0, source="feed", host=Host(name="h"), gpus=gpus, problems=problems)


def gpu(index: int = 0, **fields: object) -> Gpu:
    return msgspec.structs.replace(Gpu(index=index, uuid=f"GPU-{index}", name="H100"), **fields)


def test_what_is_possible_is_left_as_it_is() -> None:
    right = sample(gpu(utilization=100, memory=Memory(total=80, used=3, free=77)), gpu(1, power_watts=700.0))
    assert bounded(right) is right
    assert bounded(right, right) is right


def test_impossible_figures_are_left_out_and_told() -> None:
    wrong = gpu(-3, utilization=-50, fan_percent=10**9, memory=Memory(total=0, used=33 << 30, free=-1))
    (got,) = bounded(sample(wrong)).gpus
    assert (got.index, got.utilization, got.fan_percent) == (0, None, None)
    assert (got.absent["utilization"], got.absent["fan_percent"]) == (Absence.FAILED, Absence.FAILED)
    assert got.memory == Memory(used=33 << 30)
    (problem,) = bounded(sample(wrong)).problems
    assert problem.message == (
        "left out: GPU 0 memory free -1, GPU 0 memory total 0, GPU 0 index -3, GPU 0 utilization -50, "
        "GPU 0 fan_percent 1000000000"
    )


def test_a_figure_that_is_right_again_is_shown() -> None:
    before = bounded(sample(gpu(utilization=-50)))
    after = bounded(sample(msgspec.structs.replace(before.gpus[0], utilization=7)), before)
    assert (after.gpus[0].utilization, after.gpus[0].absent) == (7, {})


def test_what_was_left_out_is_told_until_the_next_whole_sample() -> None:
    before = bounded(sample(gpu(utilization=-50), gpu(1)))
    following = msgspec.structs.replace(before, taken_at=2.0)
    assert bounded(following, before).problems == before.problems
    assert bounded(sample(gpu(), gpu(1))).problems == ()


def test_two_devices_of_one_uuid_are_told_apart() -> None:
    first, second = bounded(sample(gpu(), gpu(1, uuid="GPU-0"))).gpus
    assert (first.uuid, second.uuid) == ("GPU-0", "GPU-0 (2)")


def test_two_cards_of_one_index_are_told_apart_with_their_instances() -> None:
    part = gpu(0, uuid="MIG-1", mig_parent="GPU-b")
    lost = gpu(0, uuid="GPU-c", state="lost")
    seen = bounded(sample(gpu(), gpu(0, uuid="GPU-b"), part, gpu(1), lost))
    assert [one.index for one in seen.gpus] == [0, 2, 2, 1, 0]
    assert [problem.message for problem in seen.problems] == ["left out: GPU 1 index of another GPU, 0"]
    assert bounded(msgspec.structs.replace(seen, taken_at=2.0), seen).gpus == seen.gpus


def test_long_texts_and_many_problems_are_cut() -> None:
    row = Process(pid=1, type="C", user="u" * MEGABYTE, command="c" * 2 * MEGABYTE, used_memory=-5)
    many = tuple(Problem(where="w", message=f"m{number}") for number in range(20_000))
    got = bounded(sample(gpu(name="n" * MEGABYTE, processes=(row,)), problems=many))
    (process,) = got.gpus[0].processes
    assert (len(got.gpus[0].name), len(process.user or ""), len(process.command or "")) == (256, 256, 1 << 16)
    assert (process.used_memory, process.absent) == (None, {"used_memory": Absence.FAILED})
    assert len(got.problems) == MOST_PROBLEMS + 2
    assert got.problems[MOST_PROBLEMS].message == "and 19,800 more"
