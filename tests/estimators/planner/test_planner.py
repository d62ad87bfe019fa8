import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.properties import examples
from tests.tables import for_each
from vramtui.core.base.errors import UserError
from vramtui.core.estimate import devices
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate, Ledger
from vramtui.core.estimate.fits import CEILING, PROBES, largest, search_largest, search_lines
from vramtui.core.schema.models import TorchModel, TransformerModel
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import (
    Checkpointing,
    InferRun,
    Lora,
    Parallel,
    Precision,
    ServeRun,
    TrainRun,
    Workload,
)
from vramtui.estimators.analytic import ANALYTIC
from vramtui.estimators.analytic.serving.parts import TooLargeError
from vramtui.estimators.methods import DEFAULT
from vramtui.estimators.planner.card_table import plan_grid
from vramtui.estimators.planner.planner import Planner, mitigations_for, usual_key, value_at, with_values
from vramtui.models.specs.decoder import adapted_modules
from vramtui.presets.library import PresetLibrary


class Known:
    """1000 bytes of states and 10 a token, less with each change that a job can make; refuses above 512 tokens."""

    name = "known"

    def __init__(self) -> None:
        self.asked = 0

    def estimate(self, workload: Workload, device: Device) -> Estimate:
        del device
        self.asked += 1
        run = workload.run
        assert not isinstance(run, ServeRun)
        tokens = (run.sequence_length or 0) * run.batch_size
        if (run.sequence_length or 0) > 512:
            raise UserError("run.sequence_length is more than the model's 512 positions")
        states, each = 1000, 10
        if isinstance(run, TrainRun):
            states = 100 if run.lora else 500 if run.precision == "bf16" else 1000
            each -= 3 * (run.checkpointing == "full") + (run.attention == "flash")
        size = states + each * tokens
        return Estimate(method="known", parts=(), ledger=Ledger(process=size), peak_phase="forward")


def card(size: int) -> Device:
    return Device(name="a card", capability=(9, 0), total_memory=size)


LIBRARY = PresetLibrary()
MODEL = TransformerModel(
    hidden_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=100, max_position_embeddings=512
)
TRAIN = Workload(model=MODEL, run=TrainRun(batch_size=4, sequence_length=100, attention="eager"))
INFER = Workload(model=MODEL, run=InferRun(batch_size=4, sequence_length=100, precision="fp32"))
LONG_JOB = Workload(
    model=msgspec.structs.replace(MODEL, max_position_embeddings=4096),
    run=TrainRun(batch_size=4, sequence_length=128, attention="eager"),
)


@for_each([
    ("batch_size", 9000, 8, 10000, "9 does not fit"),
    ("batch_size", 8999, 7, 9000, "8 does not fit"),
    ("sequence_length", 10**9, 512, None, "run.sequence_length is more than the model's 512 positions"),
    ("batch_size", 1999, None, 2000, "not even 1 fits"),
    ("batch_size", 10**12, CEILING, 1000 * (CEILING + 2), "nothing up to 16,777,216 is too much"),
])  # fmt: skip
def test_the_edge_is_exact(key: str, room: int, most: int | None, beyond: int | None, reason: str) -> None:
    edge = Planner(Known(), TRAIN, card(room)).edge(f"run.{key}")
    assert (edge.largest, edge.beyond, edge.reason) == (most, beyond, reason)
    assert edge.process == (beyond - 1000 if most and beyond else edge.process)


@given(
    edge=st.integers(0, 10**7),
    start=st.integers(1, 10**7),
    each=st.integers(1, 1000),
    states=st.integers(0, 10**6),
    curve=st.integers(0, 3),
)
def test_any_edge_is_found_from_any_start(edge: int, start: int, each: int, states: int, curve: int) -> None:
    def needs(number: int) -> int:
        return states + each * number + curve * number * number

    assert largest(needs, search_largest(needs(edge), start)) == edge
    assert largest(lambda n: 1 if n <= edge else None, search_largest(1, start, probes=PROBES)) == edge
    most = max(edge // 2, 1)
    assert largest(needs, search_largest(needs(edge), start, most=most)) == min(edge, most)


@given(edge=st.integers(1, 10**6), each=st.integers(1, 1000), states=st.integers(0, 10**6), start=st.integers(1, 10**6))
def test_a_straight_line_leads_to_the_edge(edge: int, each: int, states: int, start: int) -> None:
    asked: set[int] = set()

    def needs(number: int) -> int:
        asked.add(number)
        return states + each * number

    assert abs(largest(needs, search_lines(states + each * edge, start, start + 1)) - edge) <= 1
    assert len(asked) <= 4


@given(edge=st.integers(1, 5000), later=st.integers(2, 15), start=st.integers(1, 5000))
def test_a_dent_behind_the_edge_is_seen(edge: int, later: int, start: int) -> None:
    """Rounding can let one more fit where one less did not; the answer is still exact at its own edge."""

    def needs(n: int) -> int:
        return int(n > edge and n != edge + later)

    found = largest(needs, search_largest(0, min(start, edge), probes=PROBES))
    assert found == edge + later
    assert needs(found + 1)


@given(edge=st.integers(64, 5000), below=st.integers(0, 30), above=st.integers(1, 30), start=st.integers(4000, 5000))
def test_what_was_asked_before_spares_questions(edge: int, below: int, above: int, start: int) -> None:
    asked: list[int] = []

    def needs(number: int) -> int:
        asked.append(number)
        return number

    known = {number: needs(number) for number in (edge - below, edge + above)}
    assert largest(needs, search_largest(edge, start, known=known)) == edge
    assert len(asked) <= 2 + 6  # between numbers that are 60 apart


def test_a_key_that_is_no_number_is_refused_and_one_that_is_missing_can_be_varied() -> None:
    with pytest.raises(UserError, match=r"--vary run.batch_sise: not a key with a whole number \(did you mean"):
        Planner(Known(), TRAIN, card(9000)).edge("run.batch_sise")
    for key in ("run.precision", "run", "run.lora.rank", "nothing.at.all", "run.batch_size.more"):
        with pytest.raises(UserError, match="not a key with a whole number"):
            value_at(TRAIN, key)
    with pytest.raises(UserError, match="not a key with a whole number"):
        plan_grid(Known(), TRAIN, card(9), ("run.batch_size", (1,)), ("run.optimizer", (1,)))
    assert usual_key(TRAIN) == usual_key(INFER) == "run.batch_size"
    assert usual_key(SERVE) == "run.max_model_len"
    assert usual_key(Workload(model=MODEL, run=ServeRun())) == "run.max_num_seqs"
    job = Workload(model=MODEL, run=TrainRun(batch_size=1))
    assert value_at(job, "run.sequence_length") == 1
    with pytest.raises(UserError, match="not a key with a whole number"):
        value_at(job, "run.max_grad_norm")


def test_mitigations_say_what_they_free_and_what_is_shared_can_be_shared_further() -> None:
    plan = Planner(Known(), TRAIN, card(4000)).plan()
    assert (plan.fits, plan.process, plan.room) == (False, 5000, 4000)
    effects = {effect.mitigation: effect for effect in plan.effects}
    assert (effects["full checkpointing"].frees, effects["full checkpointing"].fits) == (1200, True)
    assert (effects["full checkpointing"].largest, effects["flash attention"].frees) == (4, 400)
    for size in (1, 2):
        passes = effects[f"micro-batches of {size}"]
        assert passes.largest is None
        assert passes.changes == {"run.batch_size": size, "run.gradient_accumulation_steps": 4 // size}
        assert (passes.process, passes.fits) == (1000 * (1 + size), True)
    assert effects["LoRA of rank 16"].frees == 900
    model = msgspec.structs.replace(MODEL, num_attention_heads=16, num_hidden_layers=8)
    job = Workload(model=model, run=ServeRun(max_model_len=512), parallel=Parallel(tensor=2, pipeline=2))
    mitigations = {mitigation.name: mitigation.changes for mitigation in mitigations_for(job, 8)}
    assert mitigations["tensor parallel over 4 cards"] == {"parallel.tensor": 4}
    assert mitigations["pipeline over 4 cards"] == {"parallel.pipeline": 4}
    trained = Workload(model=model, run=TrainRun(sequence_length=64), parallel=Parallel(data=2, strategy="fsdp"))
    assert {"parallel.data": 8} in [mitigation.changes for mitigation in mitigations_for(trained, 8)]
    routed = msgspec.structs.replace(model, num_experts=4, num_experts_per_tok=2)
    dealt = mitigations_for(Workload(model=routed, run=TrainRun(sequence_length=64)), 8)
    assert any(mitigation.changes.get("parallel.expert") == 4 for mitigation in dealt)
    run = TrainRun(
        optimizer_implementation="fused", checkpointing="full", precision="bf16", optimizer="adamw_8bit",
        cross_entropy="fused", quantization="nf4-double", lora=Lora(rank=8, target_modules=("q_proj",)),
    )  # fmt: skip
    assert mitigations_for(Workload(model=MODEL, run=run, parallel=Parallel(cpu_offload=True))) == ()
    assert mitigations_for(Workload(model=MODEL, run=run, parallel=Parallel(data=4, cpu_offload=True)), gpus=4) == ()


@for_each(
    [
        (5000, []), (4600, ["flash attention"]), (3800, ["micro-batches of 2"]), (2900, ["micro-batches of 1"]),
        (1600, ["flash attention", "full checkpointing", "micro-batches of 1"]),
        (1100, ["flash attention", "full checkpointing", "micro-batches of 1", "pure bf16"]), (299, None),
    ]
)  # fmt: skip
def test_the_cheapest_set_of_changes(room: int, names: list[str] | None) -> None:
    plan = Planner(Known(), TRAIN, card(room)).plan()
    assert (None if plan.cheapest is None else [mitigation.name for mitigation in plan.cheapest]) == names
    if names is not None:
        assert plan.cheapest_process is not None
        assert plan.cheapest_process <= room


@pytest.mark.slow
def test_a_set_of_changes_uses_no_more_cards_than_there_are() -> None:
    """Tensor and data ranks multiply; four cards do not become sixteen."""
    big = TransformerModel(hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, vocab_size=32000)
    for size in (12, 24, 40):
        mitigations = Planner(
            ANALYTIC, Workload(model=big, run=TrainRun(sequence_length=2048)), card(size << 30), 4
        ).cheapest()
        changes = {key: value for mitigation in mitigations or () for key, value in mitigation.changes.items()}
        ranks = [changes.get(f"parallel.{name}", 1) for name in ("data", "tensor", "pipeline", "context")]
        assert ranks[0] * ranks[1] * ranks[2] * ranks[3] <= 4


def test_what_does_not_start_does_not_fit_and_a_pipeline_has_less_at_once() -> None:
    """A vLLM server takes its share whatever it needs; a context that the share cannot hold is still too long."""
    model = msgspec.structs.replace(MODEL, max_position_embeddings=1 << 20, num_hidden_layers=32)
    planner = Planner(ANALYTIC, Workload(model=model, run=ServeRun(max_model_len=1 << 20)), card(6 << 30))
    plan = planner.plan()
    assert (plan.fits, plan.edge.key) == (False, "run.max_model_len")
    assert "the longest that fits is" in plan.reason
    assert f"{plan.edge.largest:,}" in plan.reason
    assert plan.cheapest is not None
    pipeline = with_values(LIBRARY.get("sdxl-pipeline").preset.workload, {"run.batch_size": 4})
    names = ["VAE in slices", "VAE in tiles", "one image at a time", "one part on the card", "one layer on the card"]
    assert [one.name for one in mitigations_for(pipeline)] == names
    done = {"run.batch_size": 1, "run.vae_slicing": True, "run.vae_tiling": True, "run.offload": "sequential"}
    assert mitigations_for(with_values(pipeline, done)) == ()
    assert adapted_modules(pipeline.model) == ("to_q", "to_k", "to_v", "to_out")
    trained = LIBRARY.get("sd-3.5-large-lora").preset.workload
    assert {"run.offload": "model"} in [one.changes for one in mitigations_for(trained)]
    counted = with_values(TRAIN, {"model.parameters": 7})
    assert isinstance(counted.model, TransformerModel)
    assert counted.model.parameters == 7
    changed = with_values(counted, {"model.num_hidden_layers": 3}).model
    assert isinstance(changed, TransformerModel)
    assert (changed.num_hidden_layers, changed.parameters) == (3, None)


@pytest.mark.slow
@examples(25)
@given(
    room=st.integers(3 << 30, 40 << 30),
    key=st.sampled_from(["run.batch_size", "run.sequence_length"]),
    precision=st.sampled_from(["bf16", "bf16-mixed", "fp32"]),
    checkpointing=st.sampled_from(["none", "full"]),
    parallel=st.sampled_from([None, Parallel(data=4, strategy="fsdp"), Parallel(tensor=2, pipeline=2)]),
)
def test_the_analytic_edge_is_exact(
    room: int, key: str, precision: Precision, checkpointing: Checkpointing, parallel: Parallel | None
) -> None:
    run = TrainRun(batch_size=2, sequence_length=100, precision=precision, checkpointing=checkpointing)
    model = msgspec.structs.replace(MODEL, max_position_embeddings=None)
    workload = Workload(model=model, run=run, parallel=parallel)
    edge = Planner(ANALYTIC, workload, card(room)).edge(key)
    assert edge.largest is not None
    assert ANALYTIC.estimate(with_values(workload, {key: edge.largest}), card(room)).process <= room
    assert ANALYTIC.estimate(with_values(workload, {key: edge.largest + 1}), card(room)).process > room


SERVE = Workload(model=MODEL, run=ServeRun(max_model_len=1024))
LORA = Workload(model=MODEL, run=TrainRun(precision="tf32", lora=Lora(rank=8, target_modules=("q_proj",))))


@pytest.mark.parametrize("workload", [TRAIN, INFER, SERVE, LORA])
@pytest.mark.parametrize("gpus", [1, 8])
def test_every_mitigation_is_a_change_that_the_schema_knows(workload: Workload, gpus: int) -> None:
    mitigations = mitigations_for(workload, gpus)
    assert mitigations
    assert len({mitigation.name for mitigation in mitigations}) == len(mitigations)
    assert any("cards" in mitigation.name for mitigation in mitigations) == (gpus == 8)
    for mitigation in mitigations:
        assert with_values(workload, mitigation.changes) != workload
        assert mitigation.cost


@for_each([(12, 9000, 6), (12, 6500, 4), (7, 7999, 1), (7, 8000, None)])
def test_a_micro_batch_is_the_largest_part_that_fits(batch: int, room: int, size: int | None) -> None:
    planner = Planner(Known(), with_values(TRAIN, {"run.batch_size": batch}), card(room))
    sizes = {one.changes["run.batch_size"] for one in planner.mitigations if "run.batch_size" in one.changes}
    assert sizes == {1, size or 1}


@pytest.mark.slow
@for_each([found for found in LIBRARY.all() if not isinstance(found.preset.model, TorchModel)])
def test_no_mitigation_of_a_shipped_preset_is_refused(found: PresetFile) -> None:
    """What is offered can be done: by the names that this very model has for its layers, with an optimizer's own
    implementations, and by what its engine knows.
    """
    workload = found.preset.workload
    for mitigation in (*mitigations_for(workload, 1), *mitigations_for(workload, 8)):
        with contextlib.suppress(TooLargeError):
            ANALYTIC.estimate(with_values(workload, mitigation.changes), card(80 << 30))


@for_each(
    [
        ("gpt2-1.5b", ("qkv_proj", "o_proj")), ("llama-3.1-8b-full", ("q_proj", "k_proj", "v_proj", "o_proj")),
        ("sdxl-train", ("to_q", "to_k", "to_v", "to_out")), ("flux-dev-full", ("to_q", "to_k", "to_v", "to_out")),
        ("resnet-50-train", ()), ("t5-small-train", ()),
    ]
)  # fmt: skip
def test_adapters_stand_beside_the_layers_that_a_model_has(key: str, modules: tuple[str, ...]) -> None:
    workload = LIBRARY.get(key).preset.workload
    assert adapted_modules(workload.model) == modules
    offered = [mitigation for mitigation in mitigations_for(workload) if mitigation.name == "LoRA of rank 16"]
    assert [tuple(mitigation.changes["run.lora"]["target_modules"]) for mitigation in offered] == [modules] * bool(
        modules
    )


def test_changes_go_by_the_nearer_estimate_and_by_one_method() -> None:
    """Also one whose own estimate cannot be simulated: memory of the host beside the card's."""
    model = TransformerModel(hidden_size=512, num_hidden_layers=4, num_attention_heads=8, vocab_size=8000)
    workload = Workload(model=model, run=TrainRun(batch_size=4, sequence_length=256))
    device = devices.card("T4")
    planner = Planner(ANALYTIC, workload, device, exact=DEFAULT)
    before = DEFAULT.estimate(workload, device).process
    methods = set()
    for effect in planner.effects(before, "run.batch_size"):
        changed = with_values(workload, effect.changes)
        near = DEFAULT.estimate(changed, device)
        methods.add(near.method)
        if near.method == "simulated":
            assert (effect.process, effect.frees) == (near.process, before - near.process)
            if effect.largest is not None:
                sizes = [
                    DEFAULT.estimate(changed.with_run(batch_size=effect.largest + more), device).process
                    for more in (0, 1)
                ]
                assert sizes[0] <= device.total_memory < sizes[1]
        else:
            own, other = (ANALYTIC.estimate(job, device).process for job in (workload, changed))
            assert effect.process == other * before // own
    assert methods == {"simulated", "analytic"}


def test_maps_are_exact_and_ask_a_thousand_times_at_most() -> None:
    grid = plan_grid(
        Known(), LONG_JOB, card(4000), ("run.batch_size", (3, 1, 2)), ("run.sequence_length", (100, 150, 600))
    )
    assert grid.exact
    assert grid.across == ("run.batch_size", (1, 2, 3))
    assert grid.sizes == ((2000, 3000, 4000), (2500, 4000, 5500), (None, None, None))
    assert grid.fits == ((True, True, True), (True, True, False), (False, False, False))
    one = plan_grid(Known(), LONG_JOB, card(4000), ("run.batch_size", range(1, 60)), ("run.sequence_length", (100,)))
    assert (one.fits[0].count(True), one.sizes[0][58]) == (3, 60000)
    nothing = plan_grid(Known(), LONG_JOB, card(4000), ("run.batch_size", ()), ("run.sequence_length", (100,)))
    assert nothing.sizes == ((),)
    known = Known()
    batches, lengths = range(1, 101), range(1, 501, 5)
    grid = plan_grid(known, LONG_JOB, card(100_000), ("run.batch_size", batches), ("run.sequence_length", lengths))
    assert not grid.exact
    assert known.asked <= 1000
    for y, sizes, fits in zip(lengths, grid.sizes, grid.fits, strict=True):
        assert fits == tuple(1000 + 10 * x * y <= 100_000 for x in batches)
        # Bytes are linear in each key here, so straight lines between the nodes are the truth.
        assert sizes == tuple(1000 + 10 * x * y for x in batches)


@pytest.mark.slow
def test_sizes_stay_on_their_side_of_the_edge() -> None:
    room = 3 << 30
    grid = plan_grid(
        ANALYTIC, LONG_JOB, card(room), ("run.batch_size", range(1, 61)), ("run.sequence_length", range(64, 4097, 64))
    )
    cells = [
        (size, fit)
        for row, fits in zip(grid.sizes, grid.fits, strict=True)
        for size, fit in zip(row, fits, strict=True)
    ]
    assert {fit for _, fit in cells} == {True, False}
    assert all(size is not None and (size <= room) == fit for size, fit in cells)
