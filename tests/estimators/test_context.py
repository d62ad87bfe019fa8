from pathlib import Path
from subprocess import Popen

import msgspec
import pytest

from tests.core.test_history import a_process as process
from tests.core.test_history import key_of as key
from tests.core.test_history import preset
from tests.core.test_history import sampled as sample
from tests.tables import for_each, rows
from vramtui.agent.processes import Processes
from vramtui.agent.runtime import module_loading_of
from vramtui.core.base.units import MIB
from vramtui.core.estimate.devices import CARDS, card
from vramtui.core.observation.matcher import Matcher
from vramtui.core.schema.models import Runtime, TransformerModel
from vramtui.core.schema.workload import InferRun, ServeRun, TrainRun, Workload
from vramtui.estimators.analytic import ANALYTIC
from vramtui.estimators.analytic.simulated import SIMULATED
from vramtui.estimators.torch_facts.cards import cuda_context
from vramtui.sources.host.processes import ProcessReader

MODEL = TransformerModel(hidden_size=256, num_hidden_layers=2, num_attention_heads=4, vocab_size=1000)


@for_each(rows(__file__, "mlps"))
def test_published_mlps_are_in_the_range(inputs: int, batch: int, seen: int, widths: list[int]) -> None:
    layers: list[dict[str, object]] = []
    for width in widths:
        layers += [{"type": "linear", "out_features": width}, {"type": "activation", "act": "relu"}]
    model = {"kind": "sequential", "input_shape": [inputs], "layers": layers[:-1]}
    run = {"kind": "train", "batch_size": batch, "precision": "fp32", "optimizer": "adam"}
    device = card("A100-40GB")
    eager, lazy = (
        SIMULATED.estimate(msgspec.convert({"model": model, "run": {**run, **more}}, Workload), device)
        for more in ({"module_loading": "eager"}, {})
    )
    context = cuda_context(device.capability, "eager")
    assert eager.reserved == lazy.reserved
    assert abs(seen * MIB - eager.process) < context.spread
    assert abs(seen * MIB - eager.process) < 0.1 * eager.process
    assert seen * MIB - lazy.process > 800 * MIB


@for_each(rows(__file__, "readings"))
def test_readings_of_eager_loading_are_inside(major: int, minor: int, gib: float) -> None:
    context = cuda_context((major, minor), "eager")
    assert abs(gib * 2**30 - context.bytes) <= context.spread


def test_a_process_is_taken_as_its_environment_says_and_eager_is_never_less() -> None:
    for device in CARDS.values():
        lazy, eager = cuda_context(device.capability), cuda_context(device.capability, "eager")
        assert eager.bytes - eager.spread >= lazy.bytes
        measured = device.capability in {(7, 0), (7, 5), (8, 0), (8, 6), (9, 0)}
        assert ("not measured" in eager.source) != measured
    # One process measured both ways (pytorch#86509).
    assert 1.9 < 666_632_192 / 287_047_680 < 3.8
    matcher = Matcher([preset("a", "train")])
    first = msgspec.structs.replace(process(1, "train"), module_loading="eager")
    found = matcher.match(sample(first, process(2, "train")), {})
    taken, other = found[key(1)], found[key(2)]
    assert isinstance(taken.preset.run, TrainRun)
    assert taken.preset.run.module_loading == "eager"
    assert [(one.key, one.words) for one in taken.known] == [("run.module_loading", "CUDA_MODULE_LOADING=EAGER")]
    assert other.known == ()
    assert other.as_run_under(Runtime("lazy")) is other
    server = msgspec.structs.replace(other, preset=msgspec.structs.replace(other.preset, run=ServeRun()))
    assert server.as_run_under(Runtime("eager")) is server


@pytest.mark.parametrize("run", [TrainRun(sequence_length=64), InferRun(sequence_length=64)])
def test_an_estimate_counts_the_context_that_the_job_has(run: TrainRun | InferRun) -> None:
    device = card("H200")
    lazy = ANALYTIC.estimate(Workload(model=MODEL, run=run), device)
    eager = ANALYTIC.estimate(Workload(model=MODEL, run=msgspec.structs.replace(run, module_loading="eager")), device)
    context = cuda_context(device.capability, "eager")
    assert eager.ledger.context == context.bytes
    assert eager.process - lazy.process == context.bytes - cuda_context(device.capability).bytes
    assert (eager.allocated, eager.reserved) == (lazy.allocated, lazy.reserved)
    part = next(part for part in eager.parts if part.line == "context")
    assert "run.module_loading = eager" in part.formula
    assert part.source == context.source
    assert (eager.error or 0) * eager.process >= context.spread


def test_the_environment_is_read_here_and_by_the_agent() -> None:
    with Popen(["sleep", "300"], env={"CUDA_MODULE_LOADING": "EAGER", "PATH": "/usr/bin:/bin"}) as job:
        try:
            while b"EAGER" not in Path(f"/proc/{job.pid}/environ").read_bytes():
                assert job.poll() is None  # exec has closed its files, and has not laid out its environment yet
            reader, agent = ProcessReader(), Processes()
            reader.update({job.pid})
            assert reader.row(job.pid, "G", "C", 1, None).module_loading == "eager"
            agent.private = False  # no device is open in it
            assert agent.row(job.pid)["module_loading"] == "eager"
        finally:
            job.kill()
    assert module_loading_of(b"A=1\0CUDA_MODULE_LOADING=lazy\0") == "lazy"
    assert module_loading_of(b"CUDA_MODULE_LOADING=DEFAULT\0") is None
