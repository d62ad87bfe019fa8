import pytest
from typer.testing import CliRunner

from vramtui.app.help.dialog import SECTIONS, bindings_of
from vramtui.cli.main import program


def say(*words: str) -> tuple[int, str]:
    answer = CliRunner().invoke(program(), ["help", *words], env={"COLUMNS": "100"})
    return answer.exit_code, answer.output


def test_every_part_of_the_preset_is_explained() -> None:
    code, text = say("estimating", "gpt2-124m", "--gpu", "H100")
    assert code == 0
    assert "gpt2-124m" in text
    for title in ("WEIGHTS", "GRADIENTS", "OPTIMIZER", "ACTIVATIONS", "WORKSPACES", "CACHED", "CUDA CONTEXT"):
        assert f"\n{title}: " in text
    assert "124,439,808 parameters x 4 B" in text
    assert max(map(len, text.splitlines())) <= 100


def test_without_a_preset_one_is_taken() -> None:
    assert say("estimating")[0] == 0


def test_keys_have_the_names_that_settings_use() -> None:
    code, text = say("keys")
    assert code == 0
    for section in SECTIONS:
        for binding in bindings_of(section):
            assert f" {binding.id} " in text


def test_keys_of_one_screen_fit_one_screen() -> None:
    shown = CliRunner().invoke(program(("help",)), ["help", "keys", "watch"]).output
    assert shown.startswith("Watch\n")
    assert "plan." not in shown
    wrong = CliRunner().invoke(program(("help",)), ["help", "keys", "nothing"])
    assert wrong.exit_code == 2
    assert "no screen is called 'nothing'; there are" in wrong.output


def test_folders_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VRAMTUI_DATA_DIR", "/somewhere")
    assert "/somewhere/history.sqlite3" in say("files")[1]


def test_number_formats_are_told_bit_by_bit() -> None:
    code, text = say("precisions")
    assert code == 0
    rows = {line[:10].strip(): line[10:].split() for line in text.splitlines()[1:8]}
    # Bits of sign, exponent and mantissa; bytes in memory; and torch.finfo's max, with the smallest subnormal number.
    assert rows == {
        "fp64": ["1", "11", "52", "8", "1.7977e+308", "4.9e-324"],
        "fp32": ["1", "8", "23", "4", "3.4028e+38", "1.4e-45"],
        "tf32": ["1", "8", "10", "4", "3.4012e+38", "1.1e-41"],
        "bf16": ["1", "8", "7", "2", "3.3895e+38", "9.2e-41"],
        "fp16": ["1", "5", "10", "2", "65504", "6e-08"],
        "fp8 e5m2": ["1", "5", "2", "1", "57344", "1.5e-05"],
        "fp8 e4m3": ["1", "4", "3", "1", "448", "0.002"],
    }
    assert "19 of their 32 bits" in " ".join(text.split())


@pytest.mark.parametrize("words", [["estimting"], ["keys", "gpt2-124m"], ["estimating", "no-such-preset"]])
def test_what_is_not_there_is_one_sentence(words: list[str]) -> None:
    code, text = say(*words)
    assert code == 2
    assert len(text.splitlines()) == 1


def test_the_nearest_topic_is_named() -> None:
    assert "did you mean estimating" in say("estimting")[1]
