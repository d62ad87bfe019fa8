import pytest

from tests.commands import invoke
from vramtui.app.help.dialog import SECTIONS, bindings_of


def say(*words: str) -> tuple[int, str]:
    answer = invoke("help", *words, columns=100)
    return answer.exit_code, answer.output


def test_every_part_of_the_preset_is_explained_and_without_one_one_is_taken() -> None:
    code, text = say("estimating", "gpt2-124m", "--gpu", "H100")
    assert code == 0
    assert "gpt2-124m" in text
    for title in ("WEIGHTS", "GRADIENTS", "OPTIMIZER", "ACTIVATIONS", "WORKSPACES", "CACHED", "CUDA CONTEXT"):
        assert f"\n{title}: " in text
    assert "124,439,808 parameters x 4 B" in text
    assert max(map(len, text.splitlines())) <= 100
    assert say("estimating")[0] == 0
    assert "did you mean estimating" in say("estimting")[1]
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


def test_keys_have_the_names_that_settings_use_and_fit_one_screen() -> None:
    code, text = say("keys")
    assert code == 0
    for section in SECTIONS:
        for binding in bindings_of(section):
            assert f" {binding.id} " in text
    shown = invoke("help", "keys", "watch").output
    assert shown.startswith("Watch\n")
    assert "plan." not in shown
    wrong = invoke("help", "keys", "nothing")
    assert wrong.exit_code == 2
    assert "no screen is called 'nothing'; there are" in wrong.output


def test_folders_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VRAMTUI_DATA_DIR", "/somewhere")
    assert "/somewhere/history.sqlite3" in say("files")[1]


@pytest.mark.parametrize("words", [["estimting"], ["keys", "gpt2-124m"], ["estimating", "no-such-preset"]])
def test_what_is_not_there_is_one_sentence(words: list[str]) -> None:
    code, text = say(*words)
    assert code == 2
    assert len(text.splitlines()) == 1
