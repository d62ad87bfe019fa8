"""Presets that are traced: the built jobs against recorded runs, their estimates, and what is refused."""

import json
import os
import signal
from pathlib import Path

import msgspec
import pytest

from tests.golden_workloads import WORKLOADS
from tests.warm_traces import WARM
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import card
from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.core.schema.workload import InferRun, TrainRun, Workload
from vramtui.estimators.analytic import parameter_count
from vramtui.estimators.traced.estimator import TRACED, estimate_of, request_of
from vramtui.estimators.traced.process.results import TraceResult
from vramtui.estimators.traced.workloads.configs import config_of
from vramtui.estimators.traced.workloads.limits import check
from vramtui.presets import PresetLibrary
from vramtui.presets.named_presets import preset_named, preset_to_trace_named
from vramtui.presets.reader import load_preset, parse_preset

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("warm_traces")]
trace = WARM.trace
RECORDED = Path(__file__).parents[2] / "golden" / "training" / "h200"
# One of each kind; benchmarks compare them all.
SOME = (
    "gpt_tiny_eager_bf16amp_adamw_ckpt",
    "gpt_tiny_sdpa_bf16_adamw",
    "hf_llama_small_sdpa_bf16_adamw",
    "manualnorm_fp32_sgd",
    "mlp_accum4_adamw",
    "mlp_bf16_adamw",
    "resnet50_native_fp32_momentum",
)
DECODERS = [found for found in PresetLibrary().all() if isinstance(found.preset.model, TransformerModel)]
# One for each model, however many run it.
PRESETS = {
    found.key: found.preset
    for found in {msgspec.json.encode(found.preset.model): found for found in reversed(DECODERS)}.values()
}
LLAMA = TransformerModel(
    hidden_size=256, num_hidden_layers=2, num_attention_heads=4, intermediate_size=512, vocab_size=1000
)


@pytest.fixture(scope="module")
def traces() -> dict[str, TraceResult]:
    return dict(zip(SOME, [WARM.trace(request_of(WORKLOADS[name], card("H200"))) for name in SOME], strict=True))


@pytest.mark.parametrize("name", SOME)
def test_the_job_of_a_preset_is_the_recorded_one_to_the_byte(traces: dict[str, TraceResult], name: str) -> None:
    recorded = json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))
    result = traces[name]
    expected = [(row[0], row[1], row[2], row[4]) for row in recorded["rows"] if row[0] != "start"]
    assert [(row.phase, row.step, row.allocated, row.peak_allocated) for row in result.timeline] == expected
    estimate = estimate_of(result, WORKLOADS[name])
    assert sum(part.at_peak for part in estimate.parts) == estimate.process
    assert estimate.allocated == max(row[3] for row in expected)


@pytest.mark.parametrize("key", PRESETS)
def test_a_model_of_transformers_has_the_presets_parameters(key: str) -> None:
    import torch  # noqa: PLC0415 - loaded only where it is tested
    import transformers  # noqa: PLC0415 - as above

    model = PRESETS[key].model
    assert isinstance(model, TransformerModel)
    try:
        config = config_of(model)
    except UserError as error:
        assert "model" in str(error)  # noqa: PT017 - either answer is right, and this one has to name the key
        return
    if model.implementation == "plain":
        return
    with torch.device("meta"):
        given = transformers.AutoConfig.for_model(**config)
        built = transformers.AutoModelForCausalLM.from_config(given)
    assert sum(parameter.numel() for parameter in built.parameters()) == parameter_count(model)


def test_generation_grows_its_cache_token_by_token() -> None:
    run = InferRun(batch_size=2, sequence_length=64, new_tokens=6)
    estimate = TRACED.estimate(Workload(model=LLAMA, run=run), card("A100"))
    assert [moment.phase for moment in estimate.timeline if moment.phase != "input"] == [
        "build", "prefill", *["decode"] * 5
    ]  # fmt: skip
    caches = [moment.categories["kv_cache"] for moment in estimate.timeline if moment.phase in {"prefill", "decode"}]
    # Keys and values of two layers, two sequences, 256 wide, in bf16.
    assert caches == [2 * 2 * 2 * 256 * 2 * (64 + token) for token in range(6)]
    assert estimate.method == "traced"


def test_a_cards_size_sets_no_limit_to_an_estimate_and_does_to_a_trace() -> None:
    workload = Workload(model=LLAMA, run=TrainRun(batch_size=4, sequence_length=128))
    small = msgspec.structs.replace(card("A100"), total_memory=8 << 20)
    assert TRACED.estimate(workload, small).allocated > small.total_memory
    assert trace(request_of(workload, small)).out_of_memory is not None


def test_precision_clipping_and_scaling_are_followed() -> None:
    plain = TrainRun(batch_size=4, sequence_length=128, precision="fp16-mixed", max_grad_norm=1.0)
    result = trace(request_of(Workload(model=LLAMA, run=plain), card("A100")))
    assert result.out_of_memory is None
    assert max(row.step for row in result.timeline) == 2


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("llama-3.1-8b-lora", "run.lora"),
        ("llama-3.1-8b-serve", "run.kind = 'serve'"),
        ("bert-base-mlm", "model.kind = 'encoder'"),
        ("rule-mlp", "model.kind = 'rule'"),
    ],
)
def test_what_is_not_built_is_told_with_its_key(key: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        check(preset_named(key, PresetLibrary()).preset.workload)


TORCH = """
name = "My own"
[model]
kind = "torch"
file = "train.py"
function = "main"
[run]
kind = "train"
"""
CODE = """
import os, signal
os.kill(PARENT, signal.SIGUSR1)  # a file would be thrown away with whatever else a traced run leaves
import torch
def main():
    net = torch.nn.Linear(1024, 1024).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    while True:
        net(torch.zeros(8, 1024, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.mark.usefixtures("warm_children")
def test_code_that_a_preset_names_runs_only_when_traced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    from typer.testing import CliRunner  # noqa: PLC0415 - for this test alone

    from vramtui.cli.main import program  # noqa: PLC0415 - as above

    monkeypatch.setenv("VRAMTUI_CONFIG_DIR", str(tmp_path / "config"))
    preset, ran = tmp_path / "mine.toml", []
    before = signal.signal(signal.SIGUSR1, lambda number, _frame: ran.append(number))
    request.addfinalizer(lambda: signal.signal(signal.SIGUSR1, before))
    preset.write_text(TORCH, encoding="utf-8")
    (tmp_path / "train.py").write_text(CODE.replace("PARENT", str(os.getpid())), encoding="utf-8")
    runner, vramtui = CliRunner(), program()
    for arguments in (["estimate", "--method", "all"], ["estimate"], ["fit", "--gpu", "H200"], ["presets", "show"]):
        runner.invoke(vramtui, [*arguments, str(preset)])
    assert runner.invoke(vramtui, ["presets", "check", str(preset)]).exit_code == 0
    assert not ran
    done = runner.invoke(vramtui, ["estimate", str(preset), "--method", "traced", "--json"])
    assert done.exit_code == 0, done.stderr
    assert ran
    (one,) = json.loads(done.stdout)["estimates"]
    assert one["ledger"]["weights"] == 4 * 1024 * 1024 + 4096
    # At the peak, the product for the weight's gradient has its expanded operand copied; the bias's comes after it.
    assert one["ledger"]["gradients"] == 4 * 1024 * 1024
    ran.clear()
    assert runner.invoke(vramtui, ["trace", str(preset), "--steps", "1"]).exit_code == 0
    assert ran


CONFIG = {"model_type": "llama", "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2,
          "num_attention_heads": 4, "vocab_size": 500}  # fmt: skip
RUN = '[run]\nkind = "train"\nbatch_size = 1\nsequence_length = 32\n'


def test_a_transformers_config_as_a_file_and_as_a_table_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"torch_dtype": "float16"}), encoding="utf-8")
    by_path = tmp_path / "path.toml"
    by_path.write_text(f'name = "a"\n[model]\nkind = "huggingface"\nconfig = "config.json"\n{RUN}', encoding="utf-8")
    table = "\n".join(f"{key} = {json.dumps(value)}" for key, value in CONFIG.items())
    inline = parse_preset(f'name = "a"\n[model]\nkind = "huggingface"\n[model.config]\n{table}\n{RUN}', "inline")
    first, second = (trace(request_of(preset.workload, card("A100"))) for preset in (load_preset(by_path), inline))
    assert first.timeline == second.timeline
    # Two embeddings, which are not tied, and two layers.
    layer = 4 * 128 * 128 + 3 * 128 * 256 + 2 * 128
    assert first.timeline[0].categories["weights"] >= 4 * (2 * 500 * 128 + 2 * layer + 128)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ('config = "gone.json"', "gone.json"),
        ("config = { hidden_size = 4 }", "model.config names no model_type"),
        ("config = 4", "model.config must be the path"),
    ],
)
def test_a_config_that_is_none_is_told_when_it_is_read(tmp_path: Path, config: str, said: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f'name = "a"\n[model]\nkind = "huggingface"\n{config}\n{RUN}', encoding="utf-8")
    with pytest.raises(UserError, match=said) as caught:
        load_preset(path)
    assert "mine.toml:" in str(caught.value)


def test_a_type_that_transformers_does_not_know_is_told() -> None:
    text = f'name = "a"\n[model]\nkind = "huggingface"\nconfig = {{ model_type = "lama" }}\n{RUN}'
    with pytest.raises(UserError, match=r"model\.config: transformers cannot read it"):
        trace(request_of(parse_preset(text, "inline").workload, card("A100")))


SINKS = {"model_type": "gpt_oss", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "head_dim": 16,
         "num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 4, "vocab_size": 500}  # fmt: skip


def test_a_model_that_refuses_the_usual_kernel_of_attention_is_traced_by_its_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SINKS), encoding="utf-8")
    found = preset_to_trace_named(str(tmp_path), PresetLibrary())
    run = InferRun(sequence_length=32, precision="bf16", new_tokens=2)
    result = trace(request_of(msgspec.structs.replace(found.preset.workload, run=run), card("H100")))
    # Keys and values of two layers; those that slide keep all of 32 tokens.
    assert result.timeline[-1].categories["kv_cache"] > 0


def test_transformers_own_reason_is_told() -> None:
    told = "{ model_type = 'llama', hidden_size = 130, num_attention_heads = 4 }"
    text = f'name = "a"\n[model]\nkind = "huggingface"\nconfig = {told}\n{RUN}'
    with pytest.raises(UserError, match=r"transformers cannot (read|build) it: .*hidden.size"):
        trace(request_of(parse_preset(text, "inline").workload, card("A100")))
    text = f'name = "a"\n[model]\nkind = "huggingface"\nconfig = {{ model_type = "vit" }}\n{RUN}'
    with pytest.raises(UserError, match="transformers has no causal language model of the type 'vit'"):
        trace(request_of(parse_preset(text, "inline").workload, card("A100")))
