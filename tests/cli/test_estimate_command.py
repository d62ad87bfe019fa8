import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from tests.commands import invoke
from tests.tables import rows
from vramtui.core.estimate.devices import sizes_of
from vramtui.core.estimate.estimate import PHASE_TITLES


@pytest.fixture(autouse=True)
def own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("VRAMTUI_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "150")
    return tmp_path


def run(*arguments: str) -> Result:
    return invoke("estimate", *arguments)


def document(*arguments: str) -> dict[str, Any]:
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.stderr
    read: dict[str, Any] = json.loads(done.stdout)
    return read


def test_the_document_of_one_estimate() -> None:
    read = document("gpt2-124m")
    assert (read["schema"], read["preset"], read["device"]) == (1, "gpt2-124m", None)
    (one,) = read["estimates"]
    assert one["method"] == "simulated"
    assert one["fits"] is None
    assert 0 < one["allocated"] <= one["reserved"] < one["process"]
    assert one["peak_phase"] in PHASE_TITLES
    assert all(isinstance(sentence, str) for sentence in one["assumptions"])
    for part in one["parts"]:
        assert isinstance(part["bytes"], int)
        assert all(part[key] for key in ("name", "formula", "source", "lifetime"))
    assert sum(part["at_peak"] for part in one["parts"]) == one["process"]
    assert {part["name"]: part["bytes"] for part in one["parts"]}["weights"] >= 124_439_808 * 4


def test_a_path_serves_as_well_as_a_name_and_a_measured_figure_stands_beside_the_estimates(own_folder: Path) -> None:
    done = invoke("presets", "show", "tiny-gpt")
    path = own_folder / "copy.toml"
    path.write_text(done.stdout, encoding="utf-8")
    copy, original = document(str(path)), document("tiny-gpt")
    assert copy["preset"] == "copy"
    assert copy["estimates"] == original["estimates"]
    path = own_folder / "mine.toml"
    shown = invoke("presets", "show", "tiny-gpt").stdout
    path.write_text(shown + '\n[measured]\nprocess = 1073741824\nwhere = "here"\n', encoding="utf-8")
    text = run(str(path), "--method", "all").stdout
    (line,) = [line for line in text.splitlines() if line.startswith("measured")]
    assert line.split() == ["measured", "–", "–", "1.00", "here"]


@pytest.mark.parametrize(("arguments", "sentence"), rows(__file__, "bad_input_is_one_sentence"))
def test_bad_input_is_one_sentence(arguments: list[str], sentence: str) -> None:
    done = run(*arguments)
    assert done.exit_code == 2
    assert done.stderr.startswith("vramtui: ")
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
    assert not done.stdout


def test_the_verdict_is_the_exit_code_and_exact_in_json() -> None:
    for arguments in (["--gpu", "H100"], ["--memory", "40GiB"], ["--gpu", "h-100", "--json"]):
        assert run("gpt2-124m", *arguments).exit_code == 0
    for arguments in (["--gpu", "T4"], ["--memory", "40GiB", "--gpu", "B200"], ["--memory", "80GB", "--json"]):
        assert run("llama-3.1-70b-infer", *arguments).exit_code == 1
    (one,) = document("tiny-gpt", "--memory", "4GiB")["estimates"]
    done = run("tiny-gpt", "--memory", f"{one['process']}", "--json")
    (exact,) = json.loads(done.stdout)["estimates"]
    assert (done.exit_code, exact["fits"], exact["spare"]) == (0, True, 0)
    done = run("tiny-gpt", "--memory", f"{one['process'] - 1}", "--json")
    (short,) = json.loads(done.stdout)["estimates"]
    assert (done.exit_code, short["fits"], short["spare"]) == (1, False, -1)


def test_every_part_is_shown_with_its_arithmetic_and_rules_beside_analytic() -> None:
    (one,) = document("gpt2-124m", "--gpu", "A100-80GB")["estimates"]
    done = run("gpt2-124m", "--gpu", "A100", "--explain")
    text = " ".join(done.stdout.split())
    for part in one["parts"]:
        assert f"{part['name']} " in text
        assert f"{part['bytes']:,}" in text
        assert " ".join(part["formula"].split()) in text
        assert part["source"] in text
    for total in ("allocated", "reserved", "process"):
        assert f"{one[total]:,}" in text
    assert text.startswith("✓ fits A100-80GB: needs ")
    assert "\x1b" not in done.stdout
    methods = [one["method"] for one in document("llama-3.1-8b-infer", "--method", "all")["estimates"]]
    assert methods[0] == "simulated"
    assert "rules:kv-cache" in methods
    text = run("llama-3.1-8b-infer", "--method", "all").stdout
    for method in methods:
        assert f"\n{method} " in text
    assert [one["method"] for one in document("llama-3.1-8b-infer", "--method", "rules")["estimates"]] == methods[1:]
    (single,) = document("llama-3.1-8b-infer", "--method", "rules:kv-cache")["estimates"]
    assert single["reserved"] is None


AXOLOTL = """\
base_model: openai-community/gpt2
sequence_len: 512
micro_batch_size: 2
gradient_accumulation_steps: 3
optimizer: sgd
gradient_checkpointing: true
"""


@pytest.mark.slow
def test_a_training_programs_own_file_is_estimated(tmp_path: Path) -> None:
    file = tmp_path / "gpt2.yml"
    file.write_text(AXOLOTL)
    found = document(str(file))
    values = ("batch_size=2", "sequence_length=512", "gradient_accumulation_steps=3", "optimizer=sgd")
    kept = ("checkpointing=full", "precision=bf16-mixed")
    same = document("gpt2-124m", *(part for value in (*values, *kept) for part in ("--set", value)))
    assert found["preset"] == "gpt2"
    parts = {part["name"]: part["bytes"] for part in same["estimates"][0]["parts"]}
    assert {part["name"]: part["bytes"] for part in found["estimates"][0]["parts"]}["weights"] == parts["weights"]
    assert json.loads(invoke("fit", str(file), "--gpu", "T4", "--json").stdout)["preset"] == "gpt2"


def test_a_job_file_goes_over_the_preset_and_set_over_both(tmp_path: Path) -> None:
    file = tmp_path / "ds.json"
    file.write_text('{"train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 4}')
    asked = document("gpt2-124m", "--job-file", str(file), "--set", "batch_size=2")
    wanted = document("gpt2-124m", "--set", "gradient_accumulation_steps=4", "--set", "batch_size=2")
    assert asked["estimates"][0]["parts"] == wanted["estimates"][0]["parts"]


@pytest.mark.parametrize(("content", "sentence"), [
    ("micro_batch_size: 2\n", "names no model that is known here: give its name or config.json, and this"),
    ("base_model: [", "job.yml"),
])  # fmt: skip
def test_a_job_file_that_does_not_do_is_one_sentence(tmp_path: Path, content: str, sentence: str) -> None:
    file = tmp_path / "job.yml"
    file.write_text(content)
    done = run(str(file))
    assert done.exit_code == 2
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("preset", "setting", "line"), rows(__file__, "a_sequence_beyond_the_models_own_length_is_said")
)
def test_a_sequence_beyond_the_models_own_length_is_said(preset: str, setting: str, line: str) -> None:
    done = run(preset, "--set", setting)
    assert done.exit_code == 0
    assert ("is beyond the" in done.stdout) is bool(line)
    assert line in done.stdout


@pytest.mark.parametrize(("name", "sizes"), [("5060 Ti", 2), ("rtx3080", 2), ("A100", 2), ("V100", 2), ("A100-80GB", 0),
                                             ("4090", 0), ("24GB", 0)])  # fmt: skip
def test_a_name_of_two_sizes_is_answered_for_both(name: str, sizes: int) -> None:
    assert run("gpt2-124m", "--gpu", name).stdout.startswith("GPU ") == bool(sizes)
    assert len(sizes_of(name)) == sizes
    if sizes:
        devices = json.loads(run("gpt2-124m", "--gpu", name, "--json").stdout)["devices"]
        assert all(one["device"] == one["answer"]["device"] and one["refusal"] is None for one in devices)
        assert f"{name} is " in run("gpt2-124m", "--gpu", name, "-v").stderr


def test_two_values_of_one_option_are_refused() -> None:
    done = invoke("fit", "gpt2-124m", "--gpu", "4090", "--gpu", "h100")
    assert (done.exit_code, "--gpu is given twice, with 4090 and h100; `vramtui est" in done.stderr) == (2, True)
    assert invoke("estimate", "gpt2-124m", "-b", "4", "--batch-size=4").exit_code == 0


def test_ollama_qlora_and_commands_behind_two_dashes() -> None:
    ollama = document("Qwen3-8B", "--serve", "ollama")["workload"]["run"]
    assert (ollama["engine"], ollama["max_model_len"], ollama["quantization"]) == ("ollama", None, "q4_k_m")
    longer = document("Qwen3-8B", "--serve", "ollama", "--seq-len", "8k", "--quant", "Q8_0")["workload"]["run"]
    assert (longer["max_model_len"], longer["quantization"]) == (8192, "q8_0")
    for given in (["--checkpointing", "full"], [], ["--checkpointing", "none"], ["--set", "run.checkpointing=none"]):
        kept = document("Qwen3-8B", "--qlora", *given)["workload"]["run"]["checkpointing"]
        assert kept == ("none" if "none" in " ".join(given) else "full")
    assert document("qwen3", "8b", "--train") == document("qwen3 8b", "--train")
    words = ["vllm", "serve", "Qwen/Qwen3-8B", "--max-model-len", "16384", "--no-such-thing"]
    answers = [
        run(*given, "--gpu", "H100") if len(given) == 1 else run("--gpu", "H100", *given)
        for given in (["--", *words], [" ".join(words)], words)
    ]
    assert {answer.exit_code for answer in answers} == {0}
    assert len({answer.stdout for answer in answers}) == 1
    assert "Not used: --no-such-thing." in answers[0].stdout
    done = run("Qwen3-8B", "--gpu", "3060", "--gpu", "h100")
    assert done.exit_code == 0  # one of them holds it
    assert [line.split()[0] for line in done.stdout.splitlines()[2:4]] == ["RTX3060", "H100"]
    assert all(words in done.stdout for words in ("does not fit", "kind infer"))
    assert run("Qwen3-32B", "--gpu", "3060,3070").exit_code == 1
    document_of_both = document("Qwen3-32B", "--gpu", "3060,h100")["devices"]
    assert [one["device"]["name"] for one in document_of_both] == ["RTX3060", "H100"]
    assert [one["answer"]["estimates"][0]["fits"] for one in document_of_both] == [False, True]
