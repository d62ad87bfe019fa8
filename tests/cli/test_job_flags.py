import json
import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import Result

from tests.commands import invoke
from tests.tables import rows
from vramtui.cli.synonyms import spell_words
from vramtui.presets import PresetLibrary
from vramtui.presets.overrides import apply_overrides

MODEL = "Llama-3.1-8B"


@pytest.fixture(autouse=True)
def own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("VRAMTUI_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "150")
    return tmp_path


def run(command: str, typed: str) -> Result:
    return invoke(command, MODEL, *shlex.split(typed))


def settings(typed: str) -> dict[str, Any]:
    done = invoke("presets", "new", "mine", "--from", MODEL, *shlex.split(typed))
    assert done.exit_code == 0, done.stderr

    preset = PresetLibrary().get("mine").preset
    import msgspec  # noqa: PLC0415 - as above

    tables: dict[str, Any] = msgspec.to_builtins(preset)
    return {"run": tables["run"], "parallel": tables["parallel"] or {}}


@pytest.mark.parametrize(("typed", "key", "value"), rows(__file__, "what_people_type_first_sets_the_key"))
def test_what_people_type_first_sets_the_key(typed: str, key: str, value: object) -> None:
    table: Any = settings(typed)
    for part in key.split("."):
        table = table[part]
    assert table == (tuple(value) if isinstance(value, list) else value)


@pytest.mark.parametrize("typed", ["--gpu 4090", '--gpu "RTX 4090"', "--gpu h100", "--gpu A100-80GB", "--gpu 24GB"])
@pytest.mark.parametrize("command", ["estimate", "fit"])
def test_a_card_is_its_name_or_its_size(command: str, typed: str) -> None:
    done = run(command, typed)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("✓ fits")


@pytest.mark.parametrize(
    ("typed", "precision"),
    [
        ("--lora --gpu T4", "fp16"),
        ("--lora --gpu V100,T4", "fp16"),
        ("--lora --bf16 --gpu T4", "bf16-mixed"),
        ("--lora --precision bf16 --gpu T4", "bf16"),
        ("--lora --gpu 4090", "bf16"),
    ],
)
def test_a_card_without_bf16_takes_fp16_unless_the_type_is_stated(typed: str, precision: str) -> None:
    document = json.loads(run("estimate", f"{typed} --json").stdout)
    answers = [one["answer"] for one in document.get("devices", [{"answer": document}])]
    assert {one["workload"]["run"]["precision"] for one in answers} == {precision}


@pytest.mark.parametrize(("typed", "key", "value"), rows(__file__, "words_of_scripts_and_keys_of_presets_are_options"))
def test_words_of_scripts_and_keys_of_presets_are_options(typed: str, key: str, value: object) -> None:
    words = spell_words(typed.split(), {"--set", "--gpu", "--memory", "--method"})
    settings = [word if "=" in word else f"{word}=" for word in words if word != "--set"]
    preset = apply_overrides(PresetLibrary().get("llama-3.1-8b-infer").preset, settings)
    table: Any = msgspec.to_builtins(preset)
    for part in key.split("."):
        table = table[part]
    assert table == (tuple(value) if isinstance(value, list) else value)


@pytest.mark.parametrize(("typed", "words"), rows(__file__, "other_names_of_a_commands_own_options"))
def test_other_names_of_a_commands_own_options(typed: str, words: list[str]) -> None:
    assert spell_words(typed.split(), {"--set", "--gpu", "--memory", "--method"}) == words


@pytest.mark.parametrize(("typed", "sentence"), rows(__file__, "what_does_not_go_is_one_sentence"))
def test_what_does_not_go_is_one_sentence(typed: str, sentence: str) -> None:
    done = run("estimate", typed)
    assert done.exit_code == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_a_job_of_a_flag_is_the_job_of_its_key_and_pick_takes_flags() -> None:
    flags = run("estimate", "--lora 8 -b 2 -s 1k --json")
    keys = run(
        "estimate",
        '--set run.kind=train --set \'run.lora={rank=8,target_modules=["q_proj","k_proj","v_proj","o_proj"]}\''
        " --set run.batch_size=2 --set run.sequence_length=1024 --json",
    )
    assert flags.exit_code == 0, flags.output
    assert json.loads(flags.stdout)["estimates"][0]["process"] == json.loads(keys.stdout)["estimates"][0]["process"]
    emptiest = invoke("pick", "--demo")
    assert emptiest.exit_code == 0, emptiest.output
    assert emptiest.stdout.strip().isdigit()
    job = invoke("pick", MODEL, "--quant", "4bit", "--demo")
    assert job.exit_code == 0, job.output
    lone = invoke("pick", "--lora", "--demo")
    assert lone.exit_code == 2
    assert "name its preset or model" in lone.stderr
