import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.loaded_once import bundled_library
from tests.properties import examples
from tests.tables import rows
from vramtui.core.base.errors import UserError
from vramtui.core.base.file_limits import TRAINING
from vramtui.core.estimate.devices import CARDS, DEFAULT_CARD
from vramtui.core.schema.preset import Preset
from vramtui.core.schema.workload import Lora, TrainRun
from vramtui.estimators.analytic import ANALYTIC
from vramtui.models.specs.decoder import decoder_spec, linear_layers
from vramtui.presets.importers.command_lines import read_command_line
from vramtui.presets.importers.derived import finder_of, preset_of_job_file, with_job_file
from vramtui.presets.importers.flags import KEYS, MODEL_KEYS
from vramtui.presets.importers.job_files import JobFile, files_named, files_of, not_read, offers_of_file, read_job_file
from vramtui.presets.importers.process_offers import draft_from_process, start_from
from vramtui.presets.named_presets import preset_named

LIBRARY = bundled_library()
FILES = {name: values for name, *values in rows(__file__, "files")}
DEEPSPEED = FILES["DeepSpeed"][2]


def trained(file: Path) -> tuple[Preset, TrainRun, Lora]:
    found = preset_of_job_file(file, LIBRARY).preset
    assert isinstance(found.run, TrainRun)
    assert found.run.lora is not None
    return found, found.run, found.run.lora


@pytest.mark.parametrize("name", FILES)
def test_what_files_say(name: str, tmp_path: Path) -> None:
    file_name, kind, text, said, unread = FILES[name]
    path = tmp_path / file_name
    path.write_text(text)
    file = read_job_file(path, file_name)
    assert file.kind == kind
    offers = draft_from_process("", LIBRARY, (file,))
    assert {offer.key: offer.value for offer in offers} == {"run.kind": "train", **dict(said)}
    assert all(offer.flag.startswith(file_name) for offer in offers)
    note = not_read(file)
    assert note.startswith(f"Not used of {file_name}: ") == bool(unread)
    assert [key for key in unread if key not in note] == []
    assert not any(key in note for key in ("auto", "fp16.enabled", "lora_target_modules"))
    assert "lora_target" not in note


def _read(tmp_path: Path, text: str | bytes, name: str = "x.yaml") -> JobFile:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_job_file(path, name)


@pytest.mark.parametrize(("text", "reason"), [
    ("a: [1", "is not valid YAML: line 1: "),
    ("a: b: c", "is not valid YAML: line 1: mapping values are not allowed here"),
    ("- a\n- b\n", "has no keys: a table of them is needed"),
    ("", "has no keys"),
    ("just: this\n", "says nothing that a preset could take"),
    (b"\xff\xfe", "is not UTF-8 text"),
    ("x" * (TRAINING.size + 1), "is larger than 128 KiB"),
    ("[" * 50_000, "x.yaml is n"),
    ("a: " + "[" * 40 + "]" * 40, "is not valid YAML: more than 32 levels"),
    ("a: [" + ",".join(["[[[[[]]]]]"] * 5000) + "]", "is not valid YAML: more than 20,000 values"),
    (
        "a: !!python/object/apply:os.system ['true']\n",
        "is not valid YAML: line 1: could not determine a constructor",
    ),
    ("? [a]\n: 1\n", "is not valid YAML: line 1: found unhashable key"),
    ("a: &a\n  b: *a\n  per_device_train_batch_size: 1\nc: *a\n", "says nothing that a preset could take"),
    ("n: " + "9" * 9000, "is not valid YAML"),
])  # fmt: skip
def test_broken_files_are_told_in_a_sentence(text: str | bytes, reason: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as told:
        _read(tmp_path, text)
    assert reason in str(told.value)
    assert "\n" not in str(told.value)


def test_json_is_told_as_json_and_names_and_values_are_safe_to_show(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"x\.json is not valid JSON: "):
        _read(tmp_path, "{", "x.json")
    file = _read(tmp_path, 'base_model: "\\e[2Jx"\n"\\e[1mkey": 1\n')
    assert "\x1b" not in not_read(file) + "".join(offer.flag for offer in draft_from_process("", LIBRARY, (file,)))


def test_only_plain_files_that_end_are_read(tmp_path: Path) -> None:
    lines = ["a0: &a0 {k: 1, l: 2}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 30)]
    with pytest.raises(UserError, match=r"too many keys|says nothing"):  # PyYAML 6.0.4 merges each key once
        _read(tmp_path, "\n".join(lines))
    lines = ["a0: &a0 {k: {}}"]
    lines += [f"a{n}: &a{n} {{{', '.join(f'k{m}: *a{n - 1}' for m in range(9))}}}" for n in range(1, 30)]
    with pytest.raises(UserError, match="says nothing"):
        _read(tmp_path, "\n".join(lines))
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    for path, reason in (
        (pipe, "is not a plain file"),
        (tmp_path, "is not a plain file"),
        (tmp_path / "none.yaml", "does not exist"),
        (Path("/dev/zero"), "is not a plain file"),
        (Path("a\0b"), "cannot be read"),
    ):
        with pytest.raises(UserError, match=reason):
            read_job_file(path)


@pytest.mark.parametrize(("command", "names"), rows(__file__, "which_words_are_files"))
def test_which_words_are_files(command: str, names: list[str]) -> None:
    assert list(files_named(read_command_line(command))) == names


def test_the_command_line_stands_above_its_files(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(DEEPSPEED)
    (tmp_path / "a.yaml").write_text("base_model: meta-llama/Llama-3.1-8B\nmicro_batch_size: 2\ndeepspeed: ds.json\n")
    command = "accelerate launch -m axolotl.cli.train a.yaml --micro_batch_size 6 --bf16"
    files, notes = files_of(command, lambda name: tmp_path / name)
    assert [file.name for file in files] == ["a.yaml", "ds.json"]
    said = {offer.key: offer for offer in draft_from_process(command, LIBRARY, files)}
    assert (said["run.batch_size"].value, said["run.batch_size"].flag) == ("6", "--micro_batch_size 6")
    assert (said["run.precision"].value, said["run.precision"].flag) == ("bf16-master", "--bf16 with DeepSpeed")
    assert said["parallel.zero_stage"].flag == "ds.json: zero_optimization.stage = 2"
    assert said["preset"].value.startswith("llama-3.1-8b")
    assert len(notes) == 1
    assert notes[0].startswith("Not used of ds.json: ")
    draft = start_from(tuple(said.values()), LIBRARY, "mine")
    assert draft.problems == ()
    assert "zero_stage = 2" in draft.text


def test_files_that_cannot_be_read_or_are_anothers_are_named(tmp_path: Path) -> None:
    command = "python train.py --deepspeed ds.json --config_file /none/a.yaml"
    files, notes = files_of(command, finder_of(0, command, tmp_path))
    assert files == ()
    assert sorted(notes) == [
        "/none/a.yaml does not exist.",
        "ds.json is not read: the folder it was named from is not known.",
    ]
    (tmp_path / "ds.json").write_text("{}")
    (tmp_path / "ds.json").chmod(0)
    if os.access(tmp_path / "ds.json", os.R_OK):
        pytest.skip("everything can be read by this user")
    files, notes = files_of("python t.py --deepspeed ds.json", lambda name: tmp_path / name)
    assert (files, notes) == ((), ("ds.json cannot be read: Permission denied.",))


def test_relative_names_are_followed_from_the_process_own_folder(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(DEEPSPEED)
    words = [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()", "--deepspeed", "ds.json"]
    command = shlex.join(words)
    with subprocess.Popen(words, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"up\n"
        files, _ = files_of(command, finder_of(process.pid, command))
        others, notes = files_of(command, finder_of(process.pid, "another --deepspeed ds.json"))
        process.stdin.close()
    assert [file.kind for file in files] == ["deepspeed"]
    assert others == ()
    assert "is not known" in notes[0]


VALUES = st.one_of(st.integers(), st.booleans(), st.none(), st.floats(), st.text(max_size=6), st.just("auto"))
NAMES = sorted({name for table in KEYS.values() for name in table} | set(MODEL_KEYS))


@examples(60)
@example({"num_processes": (1 << 20) + 1}, "accelerate")
@given(st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=6), st.sampled_from(sorted(KEYS)))
def test_any_values_are_offered_or_not_read(values: dict[str, object], kind: str) -> None:
    file = JobFile("x", kind, {name: str(value) for name, value in values.items()})
    for offer in offers_of_file(file):
        assert offer.flag.startswith("x: ")
    draft = start_from(draft_from_process("", LIBRARY, (file,)), LIBRARY, "mine")
    assert {problem.key for problem in draft.problems} <= {"model", "run", "run.lora", "parallel", "model.num_experts"}


def test_an_example_that_names_no_layers_and_a_mirror_of_the_model(tmp_path: Path) -> None:
    file = tmp_path / "qlora.yml"
    file.write_text(
        "base_model: NousResearch/Meta-Llama-3-8B\nload_in_4bit: true\nadapter: qlora\nsequence_len: 4096\nlora_r: 32\n"
        "lora_target_modules:\nlora_target_linear: true\nmicro_batch_size: 2\noptimizer: adamw_torch\nbf16: auto\n"
        "gradient_checkpointing: true\nflash_attention: true\ndeepspeed:\nfsdp:\n"
    )
    found, run, lora = trained(file)
    assert (lora.target_modules, run.precision, run.quantization) == (("all-linear",), "bf16-mixed", "nf4-double")
    names = tuple(linear_layers(decoder_spec(found.model)))
    named = msgspec.structs.replace(run, lora=msgspec.structs.replace(lora, target_modules=names))
    workload = msgspec.structs.replace(found.workload, run=named)
    assert ANALYTIC.estimate(found.workload, CARDS[DEFAULT_CARD]).parts == (
        ANALYTIC.estimate(workload, CARDS[DEFAULT_CARD]).parts
    )


@pytest.mark.parametrize(("text", "model", "run"), rows(__file__, "files_as_their_projects_publish_them"))
def test_files_as_their_projects_publish_them(text: str, model: str, run: list[Any], tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    found, job, lora = trained(file)
    assert [job.batch_size, job.sequence_length, lora.rank, list(lora.target_modules)] == run
    assert f"the shapes are those of {model}." in found.notes


def test_what_is_not_modelled_or_not_known_is_said(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("model_name_or_path: gpt2\nfinetuning_type: oft\nuse_badam: true\ncutoff_len: 64\nbf16: true\n")
    notes = preset_of_job_file(file, LIBRARY).preset.notes
    assert "finetuning_type = oft is not modelled" in notes
    assert "use_badam = true is not modelled" in notes
    file.write_text("model:\n  _component_: torchtune.models.llama3.llama3_70b\nmax_new_tokens: 200\n")
    with pytest.raises(UserError, match="names no optimizer, so it trains nothing"):
        preset_of_job_file(file, LIBRARY)
    file = tmp_path / "sft.yaml"
    file.write_text("model_name_or_path: some/model-9b\nfinetuning_type: lora\ncutoff_len: 2048\n")
    with pytest.raises(
        UserError,
        match="names some/model-9b, which is not known here: give its name or config",
    ):
        preset_of_job_file(file, LIBRARY)
    file.write_text("model_name_or_path: gpt2\nfinetuning_type: full\nbf16: true\n")
    assert "no sequence length: the model's longest" in preset_of_job_file(file, LIBRARY).preset.notes
    file = tmp_path / "ds.json"
    file.write_text(DEEPSPEED)
    with pytest.raises(UserError, match="is DeepSpeed's and names no model: give the model, and this file with"):
        preset_named(str(file), LIBRARY)


@pytest.mark.parametrize(
    ("said", "layers"),
    [
        # axolotl's documentation of models for images.
        (
            r"model.language_model.layers.[\d]+.(mlp|cross_attn|self_attn).(up|down|gate|q|k|v|o)_proj",
            ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
        ),
        (r"model\.language_model\.layers\.[\d]+\.(_wrapped\.)?self_attn\.(q|v)_proj", ("q_proj", "v_proj")),
        (r"^(?!.*(vision|visual)).*(gate|up|down)_proj$", ("gate_proj", "up_proj", "down_proj")),
        # None that picks anything, none that can be read, and one that would take long.
        (r".*no_such_layer$", None),
        (r"(q_proj", None),
        (r"((a+)+)+_proj", None),
    ],
)  # fmt: skip
def test_a_regular_expression_picks_layers(said: str, layers: tuple[str, ...] | None, tmp_path: Path) -> None:
    file = tmp_path / "lora.yaml"
    lines = ("base_model: meta-llama/Llama-3.1-8B", "adapter: lora", "lora_r: 8", f"lora_target_modules: '{said}'")
    file.write_text("\n".join((*lines, "sequence_len: 512\n")))
    if layers is None:
        offers = offers_of_file(read_job_file(file))
        assert not any(offer.key == "run.lora.target_modules" for offer in offers)
        return
    assert trained(file)[2].target_modules == layers


def test_adapters_on_a_mixture_pass_over_the_experts_and_say_what_is_not_modelled(tmp_path: Path) -> None:
    """As axolotl's examples have it: layers of a dense model's list, and experts as parameters."""
    file = tmp_path / "job.yaml"
    text = (
        "base_model: google/gemma-4-26B-A4B\nadapter: lora\nlora_r: 16\nmicro_batch_size: 1\nsequence_len: 512\n"
        "lora_target_modules: [{}]\n"
    )
    file.write_text(text.format("q_proj, gate_proj") + "lora_target_parameters: [experts.down_proj]\n")
    found, run, lora = trained(file)
    assert "lora_target_parameters = experts.down_proj is not modelled" in found.notes
    attention = msgspec.structs.replace(run, lora=msgspec.structs.replace(lora, target_modules=("q_proj",)))
    card = CARDS[DEFAULT_CARD]
    alone = msgspec.structs.replace(found.workload, run=attention)
    assert ANALYTIC.estimate(found.workload, card).parts == ANALYTIC.estimate(alone, card).parts
    file.write_text(text.format("gate_proj"))
    with pytest.raises(UserError, match="gate_proj are in the experts, where peft puts no adapters"):
        ANALYTIC.estimate(preset_of_job_file(file, LIBRARY).preset.workload, card)


@pytest.mark.parametrize(("text", "checkpointing", "rank"), [
    ("finetuning_type: lora\n", "full", 8),
    ("finetuning_type: lora\nlora_rank: 16\n", "full", 16),
    ("finetuning_type: full\n", "full", None),
    ("finetuning_type: lora\ndisable_gradient_checkpointing: true\n", "none", 8),
])  # fmt: skip
def test_what_a_file_leaves_out(text: str, checkpointing: str, rank: int | None, tmp_path: Path) -> None:
    """LLaMA-Factory's checkpointing is on and its adapters are of rank 8, as of its job that runs."""
    file = tmp_path / "sft.yaml"
    file.write_text(f"model_name_or_path: Qwen/Qwen3-8B\nstage: sft\ncutoff_len: 2048\n{text}")
    by_itself = preset_of_job_file(file, LIBRARY).preset.run
    beside_a_model = with_job_file(preset_named("Qwen/Qwen3-8B", LIBRARY), file, LIBRARY).preset.run
    for run in (by_itself, beside_a_model):
        assert isinstance(run, TrainRun)
        assert run.checkpointing == checkpointing
        assert (None if run.lora is None else run.lora.rank) == rank


@pytest.mark.parametrize("text", ["base_model: {}\nrl: kto\n", "model_name_or_path: {}\nstage: dpo\nlora_rank: 8\n"])
def test_training_on_preferences_is_said_not_to_be_modelled(text: str, tmp_path: Path) -> None:
    file = tmp_path / "preferences.yaml"
    file.write_text(text.format("Qwen/Qwen3-8B"))
    assert "is not modelled: counted as if the file did not say it" in preset_of_job_file(file, LIBRARY).preset.notes
