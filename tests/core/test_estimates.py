import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.loaded_once import bundled_presets
from tests.tables import for_each, rows
from vramtui.core.base.errors import UserError
from vramtui.core.base.units import GIB
from vramtui.core.estimate.assumptions import Range, range_of, values_of
from vramtui.core.estimate.assumptions import words_of as settings_words
from vramtui.core.estimate.devices import Device, card
from vramtui.core.estimate.estimate import CATEGORIES, LINES, USUAL_ERROR, Category, Estimate, Ledger, ledger_from_parts
from vramtui.core.estimate.explanation import arithmetic, chapters, peak_sentence, words_of
from vramtui.core.estimate.fits import Fit, compare, compare_ledgers, fit_beside_others, shown_rows
from vramtui.core.observation.snapshot import observed_ledger
from vramtui.core.schema.models import TorchModel
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import TrainRun, Workload
from vramtui.estimators.analytic import ANALYTIC
from vramtui.estimators.methods import estimates_by
from vramtui.presets import PresetLibrary
from vramtui.presets.importers.derived import derived_preset

sizes = st.integers(min_value=0, max_value=2**45)
leaves = st.dictionaries(st.sampled_from(CATEGORIES), sizes)


@given(leaves, sizes, sizes, sizes)
def test_every_total_is_the_sum_below_it(parts: dict[Category, int], cached: int, context: int, other: int) -> None:
    allocated = sum(parts.values())
    ledger = ledger_from_parts(parts, reserved=allocated + cached, context=context, other=other)
    assert sum(ledger.bytes_of(category) or 0 for category in CATEGORIES) == ledger.allocated == allocated
    assert (ledger.cached, ledger.reserved) == (cached, allocated + cached)
    assert ledger.process == allocated + cached + context + other


def test_what_was_not_measured_or_seen_is_unknown() -> None:
    with pytest.raises(ValueError, match="less than allocated"):
        ledger_from_parts({"weights": 10}, reserved=9, context=0)
    ledger = Ledger(process=5)
    assert [line for line in LINES if ledger.bytes_of(line) is not None] == ["process"]
    compared = compare("p", estimate(10 * GIB), Ledger(), None)
    assert (compared.verdict, compared.fraction) == ("unknown", None)
    assert all(row.observed is None and row.difference is None for row in compared.rows)
    assert compared.sentence == "predicted to peak at 10.0 GiB in optimizer step"
    lines = [row.line for row in compare("p", estimate(GIB), Ledger(kv_cache=5), None).rows]
    assert lines == ["weights", "kv_cache", "allocated", "reserved", "process"]


@for_each(rows(__file__, "lines"))
def test_the_line(needs: int, has: int, error: float, line: str) -> None:
    assert Fit(needs=needs, has=has, error=error).line("H100") == line


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40), st.none() | st.floats(0, 1))
def test_the_verdicts_do_not_overlap(needs: int, has: int, error: float | None) -> None:
    fit = Fit(needs=needs, has=has, error=error)
    assert fit.is_enough == (fit.verdict != "does not fit") == (fit.spare >= 0)
    usual = USUAL_ERROR if error is None else error
    assert (fit.verdict == "fits") == (needs * (1 + usual) <= has and needs <= has)


def test_a_job_beside_others_goes_by_its_stated_error() -> None:
    alone = fit_beside_others(60 * GIB, 80 * GIB, None, 0.08, "GPU 0")
    assert (alone.verdict, alone.has) == ("fits", 80 * GIB)
    short = fit_beside_others(60 * GIB, 80 * GIB, 50 * GIB, 0.08, "GPU 0")
    assert short.verdict == "does not fit"
    assert short.sentence == "needs 60.0 GiB, has 50.0 GiB: 10.0 GiB short; would fit GPU 0 if empty"
    never = fit_beside_others(90 * GIB, 80 * GIB, 50 * GIB, 0.08, "GPU 0")
    assert never.sentence == "needs 90.0 GiB, has 80.0 GiB: 10.0 GiB short"
    assert fit_beside_others(60 * GIB, 80 * GIB, 62 * GIB, 0.08, "GPU 0").verdict == "tight"
    seen = Ledger(process=int(10.6 * GIB))
    assert compare("p", estimate(10 * GIB), seen, None).verdict == "as predicted"
    assert compare("p", estimate(10 * GIB, error=0.05), seen, None).verdict == "over"
    assert compare("p", estimate(12 * GIB, error=0.05), seen, None).verdict == "below"
    compared = compare("p", estimate(10 * GIB), Ledger(process=15 * GIB), now=14 * GIB)
    assert compared.sentence == "5.0 GiB over the prediction"
    assert (compared.now, compared.peak, compared.predicted) == (14 * GIB, 15 * GIB, 10 * GIB)


def estimate(weights: int, *, error: float | None = None) -> Estimate:
    ledger = ledger_from_parts({"weights": weights}, reserved=weights, context=0)
    return Estimate(method="analytic", parts=(), ledger=ledger, peak_phase="step", error=error)


@given(st.integers(1, 2**45), st.integers(0, 2**45))
def test_difference_fraction_and_verdict_agree(predicted: int, seen: int) -> None:
    compared = compare("p", estimate(predicted), Ledger(process=seen), seen)
    row = compared.rows[-1]
    assert (row.line, row.difference, compared.fraction) == ("process", seen - predicted, row.fraction)
    assert compared.fraction is not None
    assert (compared.fraction > 0) == (seen > predicted)
    over, below = compared.fraction > USUAL_ERROR, compared.fraction < -USUAL_ERROR
    assert compared.verdict == ("over" if over else "below" if below else "as predicted")


@given(st.fixed_dictionaries({line: st.one_of(st.none(), st.integers(0, 2**40)) for line in LINES}))
def test_every_observed_line_has_its_row(parts: dict[str, int | None]) -> None:
    compared = compare("p", estimate(GIB), Ledger(**parts), None)
    observed = {row.line: row.observed for row in compared.rows}
    assert all(observed[line] == parts[line] for line in LINES if parts[line] is not None)
    assert [row.line for row in compared.rows] == [line for line in LINES if line in observed]


def test_figures_of_a_job_are_held_against_all_that_they_cover() -> None:
    parts: dict[Category, int] = {"weights": 10 * GIB, "activations": 5 * GIB, "inputs": GIB, "temporaries": 2 * GIB}
    predicted = ledger_from_parts(parts, reserved=19 * GIB, context=0)
    told = Ledger(weights=10 * GIB, gradients=0, optimizer=0, activations=8 * GIB, allocated=18 * GIB)
    rows = {row.line: row for row in compare_ledgers(predicted, told)}
    assert (rows["activations"].fraction, rows["activations"].difference) == (0, 0)
    assert rows["activations"].predicted == 5 * GIB
    assert {line for line, row in rows.items() if row.within == "activations"} == {"inputs", "temporaries"}
    assert rows["weights"].within is None
    predicted = ledger_from_parts({"activations": 5 * GIB, "inputs": GIB}, reserved=6 * GIB, context=0)
    told = Ledger(activations=5 * GIB, allocated=6 * GIB)
    rows = {row.line: row for row in compare_ledgers(predicted, told)}
    assert (rows["inputs"].within, rows["activations"].difference) == (None, 0)
    predicted = ledger_from_parts({"weights": 5 * GIB}, reserved=5 * GIB, context=GIB // 2, other=GIB // 4)
    rows = {row.line: row for row in compare_ledgers(predicted, observed_ledger(6 * GIB, Ledger(reserved=5 * GIB)))}
    assert (rows["context"].observed, rows["context"].difference) == (GIB, GIB // 4)
    assert rows["other"].within == "context"
    assert observed_ledger(4 * GIB, Ledger(reserved=5 * GIB)) == Ledger(reserved=5 * GIB, process=4 * GIB)
    assert observed_ledger(None, Ledger(reserved=5 * GIB)).context is None


def test_lines_that_are_observed_together_have_one_subtotal() -> None:
    predicted = Ledger(weights=10, activations=50, workspaces=2, temporaries=5, allocated=67, context=4, process=71)
    observed = Ledger(weights=10, activations=58, allocated=68, process=73)
    shown = {row.title: row for row in shown_rows(compare_ledgers(predicted, observed))}
    together = shown["activations, workspaces and temporaries"]
    assert (together.predicted, together.observed, together.difference, together.is_subtotal) == (57, 58, 1, True)
    assert together.fraction == pytest.approx(58 / 57 - 1)
    for part in ("activations", "workspaces", "temporaries"):
        assert shown[part].is_part
        assert (shown[part].observed, shown[part].difference, shown[part].fraction) == (None, None, None)
    for row in shown.values():
        if row.difference is not None and row.predicted is not None and row.observed is not None:
            assert row.difference == row.observed - row.predicted, "a row never contradicts itself"
    assert [row.title for row in shown_rows(compare_ledgers(predicted, Ledger(process=73)))][-1] == "process"
    assert not any(row.is_subtotal for row in shown_rows(compare_ledgers(predicted, Ledger(process=73))))


PRESETS = [found for found in PresetLibrary().all() if not isinstance(found.preset.model, TorchModel)]


@pytest.mark.slow
@for_each(PRESETS)
def test_every_part_is_told_once_with_its_arithmetic(found: PresetFile) -> None:
    estimate = estimates_by(None, found.preset.workload, card("H200"))[0]
    told = chapters(estimate)
    assert sorted(part.name for chapter in told for part in chapter.parts) == sorted(
        part.name for part in estimate.parts
    )
    for chapter in told:
        words = f"{chapter.words.what} {chapter.words.changed_by} {chapter.words.sure}"
        if not isinstance(found.preset.run, TrainRun):
            assert not re.search("autograd|gradient|checkpointing|optimizer|QLoRA", words), "nothing is trained"
        else:
            assert chapter.words is words_of(trains=True)[chapter.line]
        assert chapter.at_peak == sum(part.at_peak for part in chapter.parts)
        for part in chapter.parts:
            assert part.formula in arithmetic(part)
            assert part.name in arithmetic(part)


def test_the_peak_is_told_with_the_three_totals_or_without() -> None:
    found = PresetLibrary().get("gpt2-124m")
    estimate = estimates_by(None, found.preset.workload, card("H200"))[0]
    sentence = peak_sentence(estimate)
    assert "step" in sentence
    assert all(word in sentence for word in ("allocated", "reserved", "process", "GiB"))
    found = PresetLibrary().get("gpt2-124m")
    assert "Peak: " in peak_sentence(estimates_by("rules:bytes-per-parameter", found.preset.workload, card("H200"))[0])


H100 = card("H100")
ALL = ("run.batch_size", "run.sequence_length", "run.precision", "run.lora", "run.checkpointing")


def ask(workload: Workload, device: Device) -> Estimate | None:
    try:
        return ANALYTIC.estimate(workload, device)
    except UserError:
        return None


def span(found: PresetFile | None, device: Device = H100) -> Range:
    assert found is not None
    answer = range_of(found, device, ask)
    assert answer is not None
    return answer


def test_a_bare_command_line_is_a_range_and_no_prediction() -> None:
    """It stood there as 512.7 GiB of a job that holds 33.3."""
    found = span(derived_preset("python3 train.py --model llama-7b --batch-size 32", None))
    assert not found.is_prediction
    assert not found.may_alert
    assert found.lowest < 33 * GIB < found.highest
    assert found.weights is not None
    assert [round(size / GIB, 1) for size in found.weights] == [12.6, 25.1]  # in bf16 below LoRA, in fp32 without
    unknown = "sequence, precision, LoRA and checkpointing are not on the command line"
    assert found.sentence == f"cannot be predicted: {unknown}"  # more than three times as much is no answer
    near = msgspec.structs.replace(found, highest=2 * found.lowest)
    assert near.sentence.startswith("training 2")
    assert near.sentence.endswith(unknown)
    assert found.place_of(33 * GIB) == "within the range"
    assert found.place_of(5 * GIB).startswith("below")
    assert found.is_refuted_by(2 * found.highest)
    found = span(derived_preset("python app.py --model stabilityai/stable-diffusion-xl-base-1.0", None))
    assert found.doing == "generation or training"
    assert not found.is_prediction
    assert "training or generation" in found.sentence
    job = derived_preset("python3 train.py --model llama-7b --batch-size 32 --bf16", None)
    assert job is not None
    close = msgspec.structs.replace(job, assumed=("run.lora.rank",))
    assert span(close, Device(name="", capability=(9, 0), total_memory=1 << 50)).is_prediction
    assert not span(close).is_prediction


@for_each(bundled_presets()[::7])
def test_the_ends_of_a_range_hold_the_estimate(found: PresetFile) -> None:
    keys = tuple(key for key in ALL if key.removeprefix("run.") in found.preset.run.__struct_fields__)
    for count in range(1, len(keys) + 1):
        answer = range_of(msgspec.structs.replace(found, assumed=keys[:count]), H100, ask)
        if answer is None:
            assert ask(found.preset.workload, H100) is None
            return
        assert answer.lowest <= answer.estimate <= answer.highest
        assert answer.is_prediction or not answer.may_alert
        assert values_of(msgspec.structs.replace(found, assumed=keys[:count]))
    assert range_of(found, H100, ask) is None, "nothing of it is assumed"


def test_settings_are_named_and_what_all_is_said_of_is_a_prediction() -> None:
    assert settings_words(("run.sequence_length", "run.lora")) == "sequence and LoRA"
    assert settings_words(("run.lora",)) == "LoRA"
    assert settings_words(ALL) == "batch, sequence, precision, LoRA and checkpointing"
    found = derived_preset(
        "python run_clm.py --model_name_or_path gpt2-xl --per_device_train_batch_size 8 --block_size 1024 --do_train"
        " --bf16",
        None,
    )
    assert found is not None
    assert set(found.assumed) <= {"model"}
    assert getattr(found.preset.run, "checkpointing", None) == "none", "a Trainer has none unless it is told"
    answer = range_of(found, H100, ask)
    assert answer is None or answer.may_alert
