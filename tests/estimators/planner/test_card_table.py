from tests.tables import for_each, rows
from vramtui.core.estimate.devices import COMPARED, card, group_of
from vramtui.estimators.analytic import ANALYTIC
from vramtui.estimators.methods import DEFAULT
from vramtui.estimators.planner.card_table import FSDP, can_share, card_fits, known_cards, over_fsdp
from vramtui.estimators.planner.planner import Planner, answer_for
from vramtui.presets import PresetLibrary


@for_each(rows(__file__, "groups"))
def test_groups(name: str, group: str) -> None:
    assert group_of(name) == group


def test_every_card_is_listed_once_and_over_how_few_it_fits() -> None:
    names = [one.name for one in known_cards()]
    assert sorted(names) == sorted(device.name for device in COMPARED)
    groups = [group_of(name) for name in names]
    assert [group for at, group in enumerate(groups) if at == 0 or groups[at - 1] != group] == list(
        dict.fromkeys(groups)
    )
    workload = PresetLibrary().get("llama-3.2-3b-lora").preset.workload
    cards = (card("RTX4090"), card("H100"))
    small, large = card_fits(ANALYTIC, workload, cards)
    for one in (small, large):
        assert one.fit.needs == answer_for(ANALYTIC, workload, one.card).process
        assert one.largest == Planner(ANALYTIC, workload, one.card).edge(one.key).largest
    assert (small.fit.verdict, large.fsdp) == ("does not fit", 1)
    workload = PresetLibrary().get("qwen-2.5-32b-infer").preset.workload
    edge = Planner(ANALYTIC, workload, card("B300")).edge("run.sequence_length")
    assert edge.largest is not None
    assert edge.largest > 32768
    assert edge.reason.endswith("beyond the model's own 32,768")
    # Full fine-tuning of 8 billion parameters: its states alone are more than one of these cards has.
    workload = PresetLibrary().get("llama-3.1-8b-full").preset.workload
    (one,) = card_fits(ANALYTIC, workload, (card("H100"),))
    assert can_share(workload)
    assert one.fsdp in FSDP[1:]
    assert one.fsdp is not None
    assert answer_for(ANALYTIC, over_fsdp(workload, one.fsdp), one.card).fits
    assert not answer_for(ANALYTIC, over_fsdp(workload, one.fsdp // 2), one.card).fits
    workload = PresetLibrary().get("llama-3.1-8b-serve").preset.workload
    (one,) = card_fits(ANALYTIC, workload, (card("H100"),))
    assert (one.fsdp, one.own, one.largest_label) == (None, 131072, ">131,072")


def test_with_a_nearer_estimate_each_card_says_what_the_estimate_says() -> None:
    """A job whose flat share of cached memory is more than an H100 has, and whose simulated memory is not."""
    workload = PresetLibrary().get("llama-3.1-8b-lora").preset.workload
    cards = (card("RTX4090"), card("H100"))
    quick, near = (tuple(card_fits(ANALYTIC, workload, cards, nearest)) for nearest in (None, DEFAULT))
    for before, after in zip(quick, near, strict=True):
        exact = DEFAULT.estimate(workload, after.card)
        assert (after.fit.needs, after.fit.error) == (exact.process, exact.error)
        assert after.fit.needs < before.fit.needs
        assert after.fsdp == (1 if after.fit.is_enough else before.fsdp)
    verdicts = [one.fit.verdict for one in (*quick, *near) if one.fit is not None]
    assert verdicts == ["does not fit", "does not fit", "does not fit", "fits"]
