import asyncio
import doctest
import inspect
import json
import re
import subprocess
import sys
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest

import vramtui
from tests.tables import for_each, rows
from vramtui.api import estimation, observation, schemas
from vramtui.cli.estimate import changed_preset
from vramtui.core.schema.workload import TrainRun
from vramtui.estimators.methods import DEFAULT
from vramtui.presets import PresetLibrary

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 512, "vocab_size": 1000,
    "max_position_embeddings": 512, "tie_word_embeddings": False,
}  # fmt: skip
ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = [
    example
    for page in PAGES
    for example in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    if example.startswith("import vramtui")
]
AXOLOTL = """\
base_model: meta-llama/Llama-3.1-8B
micro_batch_size: 2
sequence_len: 4096
bf16: true
optimizer: adamw_torch
gradient_checkpointing: true
"""
DEEPSPEED = {"train_micro_batch_size_per_gpu": 3, "bf16": {"enabled": True}, "zero_optimization": {"stage": 2}}
TRAIN: dict[str, Any] = {
    "kind": "train", "batch_size": 4, "sequence_length": 128, "precision": "bf16", "optimizer": "adamw",
}  # fmt: skip


def test_a_preset_is_what_the_command_line_makes_of_it_by_its_name_too() -> None:
    made = vramtui.estimate("llama-3.1-8b-lora", batch_size=2, gpu="A100-80GB")
    preset = changed_preset("llama-3.1-8b-lora", ["run.batch_size=2"]).preset
    assert made.estimate == DEFAULT.estimate(preset.workload, made.device)
    assert made.fits is (made.process <= made.device.total_memory)
    assert sum(part.at_peak for part in made.parts) == made.process
    made = vramtui.estimate("meta-llama/Llama-3.1-8B", **TRAIN, lora={"rank": 16}, gpu="A100-80GB")
    assert made.fits
    assert 8_030_000_000 < (made.ledger.weights or 0) / 2 < 8_100_000_000
    assert "from the bundled presets" in made.assumptions[0]
    with pytest.raises(vramtui.UserError):
        vramtui.estimate("nobody/no-such-model-9000")
    report = vramtui.fit("gpt2-124m", memory="8GiB")
    most = report.largest("batch_size")
    assert most is not None
    assert vramtui.estimate("gpt2-124m", batch_size=most, memory="8GiB").fits
    assert not vramtui.estimate("gpt2-124m", batch_size=most + 1, memory="8GiB").fits
    assert report.changes
    made = vramtui.estimate("gpt2-124m", gpu="RTX4090")
    assert repr(made) == f"<JobEstimate {str(made).splitlines()[0]}>"
    assert repr(vramtui.fit("tiny-gpt", gpu="T4")).startswith("<FitReport tiny-gpt: ✓ fits T4")
    with pytest.warns(UserWarning, match="^v100 is V100-16GB, V100-32GB: this is V100-16GB$"):
        assert vramtui.fit("Qwen/Qwen3-8B", gpu="v100").preset.preset.run.precision == "fp16"
    assert repr(vramtui.ObservedRun(None)) == "<ObservedRun: no CUDA seen>"
    assert made._repr_html_().count("<tr>") == len(made.parts) + 1
    assert "fits RTX4090" in str(made)
    refused(lambda: vramtui.estimate(None), "^None is not a model")
    refused(lambda: vramtui.estimate(SimpleNamespace(named_parameters=list)), "vramtui.dry_run")
    refused(lambda: vramtui.fit("gpt2-124m", gpu="H100").largest(5), "key is 5")  # type: ignore[arg-type]  # a slip


def test_the_same_config_or_preset_in_every_form(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    config = SimpleNamespace(model_type="llama", to_dict=lambda: CONFIG)
    module = SimpleNamespace(config=config)
    forms = [CONFIG, tmp_path, str(tmp_path / "config.json"), config, module, SimpleNamespace(module=module)]
    assert len({vramtui.estimate(form, **TRAIN).process for form in forms}) == 1
    found = PresetLibrary().get("gpt2-124m").preset
    tables = msgspec.to_builtins(found.workload)
    assert vramtui.estimate(tables).process == vramtui.estimate(found).process == vramtui.estimate("gpt2-124m").process


def test_a_training_programs_file(tmp_path: Path) -> None:
    (tmp_path / "axolotl.yml").write_text(AXOLOTL)
    (tmp_path / "ds.json").write_text(json.dumps(DEEPSPEED))
    run = vramtui.estimate(tmp_path / "axolotl.yml").preset.preset.run
    assert isinstance(run, TrainRun)
    assert (run.batch_size, run.sequence_length, run.checkpointing) == (2, 4096, "full")
    with_zero = vramtui.estimate("gpt2-124m", job_file=tmp_path / "ds.json", parallel={"data": 4})
    workload = msgspec.to_builtins(with_zero.preset.preset.workload)
    assert (workload["run"]["batch_size"], workload["parallel"]["zero_stage"]) == (3, 2)
    accelerate = tmp_path / "accelerate.yaml"
    accelerate.write_text("compute_environment: LOCAL_MACHINE\nmixed_precision: bf16\nnum_processes: 4\n")
    with pytest.raises(vramtui.UserError, match="names no model"):
        vramtui.estimate(accelerate)


@for_each(rows(__file__, "mistakes"))
def test_a_mistake_is_one_sentence(function: str, given: list[Any], named: dict[str, Any], words: str) -> None:
    refused(lambda: getattr(vramtui, function)(*given, **named), words)


def refused(act: Callable[[], object], words: str) -> None:
    with pytest.raises(vramtui.UserError, match=words) as caught:
        act()
    assert "--" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_importing_the_package_loads_nothing_and_every_type_has_a_name() -> None:
    program = (
        "import sys, time; began = time.process_time(); import vramtui; took = time.process_time() - began\n"
        "heavy = {'msgspec', 'textual', 'torch', 'rich', 'pynvml', 'typer'} & set(sys.modules)\n"
        "vramtui.estimate\n"
        "print(took < 0.005, heavy, {'textual', 'torch', 'rich', 'pynvml', 'typer'} & set(sys.modules))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["True", "set()", "set()"]
    from vramtui import api  # noqa: PLC0415 - beside what it is compared with

    given = [getattr(api, name) for name in api.__all__ if name not in DEEPER]
    found = {one.__name__ for public in given for hint in _hints(public) for one in _classes(hint)}
    assert {"Part", "XidError", "Ledger", "DryRun"} <= found
    stub = Path(vramtui.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    assert [name for name in api.__all__ if f"import {name} as {name}" not in stub] == []
    assert found - set(api.__all__) == INSIDE & found


INSIDE = {"Device", "Plan", "Planner", "PresetFile", "Runtime"}  # parts of a report that its own methods stand for
# Named, so that a caller can say what it was given; what they hold in turn is for those who look into them.
DEEPER = {"Comparison", "Edge", "Effect", "Estimate", "ObservedJob", "PhaseEnd", "DryRun"}


def _classes(hint: object) -> Iterator[type]:
    if isinstance(hint, type) and hint.__module__.startswith("vramtui."):
        yield hint
    for argument in typing.get_args(hint):
        yield from _classes(argument)


def _hints(public: object) -> Iterator[object]:
    if inspect.isfunction(public):
        yield from typing.get_type_hints(public).values()
    elif isinstance(public, type) and not issubclass(public, BaseException):
        yield from typing.get_type_hints(public).values()
        for name, member in vars(public).items():
            function = getattr(member, "fget", None) or getattr(member, "func", None) or member
            if not name.startswith("_") and inspect.isfunction(function):
                yield typing.get_type_hints(function).get("return")


PROGRAM = """
import asyncio

import vramtui
from vramtui import Gpu, Process, Sample, XidError

def largest(sample: Sample) -> Process | None:
    rows = [process for gpu in sample.gpus for process in gpu.processes]
    return max(rows, key=lambda row: row.used_memory or 0, default=None)

def errors(gpu: Gpu) -> tuple[XidError, ...]:
    return gpu.xid_errors or ()

def main() -> None:
    with vramtui.watch(0.01, demo=True) as stream:
        for number, sample in enumerate(stream):
            row = largest(sample)
            codes = [error.code for gpu in sample.gpus for error in errors(gpu)]
            print(sample.host.name, row and row.used_memory, codes)
            if number == 2:
                break

async def later() -> int:
    async with vramtui.watch(0.01, demo=True) as stream:
        async for sample in stream:
            return len(sample.gpus)
    return 0

main()
print(asyncio.run(later()))
made: vramtui.JobEstimate = vramtui.estimate("gpt2-124m", gpu="RTX4090")
parts: list[vramtui.Part] = list(made.parts)
fits: vramtui.Fit | None = made.fit
try:
    vramtui.watch(0)
except vramtui.Error as error:
    print(len(parts), fits is not None, error)
"""


@pytest.mark.slow
def test_a_program_of_somebody_elses_runs_and_is_clean_under_strict_types(tmp_path: Path, runtime: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    ended = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, cwd=runtime, check=True)
    assert ended.stdout.splitlines()[-1].endswith("True the interval is 0: give seconds above 0")
    assert len(ended.stdout.splitlines()) == 5
    options = ("--strict", "--config-file=", f"--cache-dir={ROOT / '.mypy_cache'}")
    mypy = [sys.executable, "-m", "mypy", *options, str(program)]
    checked = subprocess.run(mypy, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("module", [estimation, observation, schemas], ids=lambda module: module.__name__)
def test_examples_of_the_docstrings(module: ModuleType, runtime: Path) -> None:
    assert runtime.is_dir()
    ended = doctest.testmod(module)
    assert ended.attempted
    assert not ended.failed


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_docs_examples(
    example: str, runtime: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(runtime)
    exec(compile(example, "docs", "exec"), {"__name__": "example"})  # noqa: S102 - it is the documentation's own
    assert bool(capsys.readouterr().out) == ("print(" in example)


def test_samples_come_to_for_and_to_async_for() -> None:
    async def second(stream: vramtui.SampleStream) -> vramtui.Sample:
        async for sample in stream:
            return sample
        raise AssertionError

    stream = vramtui.watch(0.01, demo=True)
    first = next(stream)
    assert isinstance(first.gpus[0], vramtui.Gpu)
    rows = first.to_records()
    assert len(rows) == sum(max(1, len(gpu.processes)) for gpu in first.gpus)
    assert {row["gpu_index"] for row in rows} == {gpu.index for gpu in first.gpus}
    assert asyncio.run(second(stream)).taken_at > first.taken_at
    stream.close()
    for wrong in (0, -1.0, float("nan")):
        with pytest.raises(vramtui.Error, match="give seconds above 0"):
            vramtui.watch(wrong, demo=True)
