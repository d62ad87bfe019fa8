"""Ways of sharing that cannot be, as someone types them: one sentence, exit code 2."""

import pytest
from typer.testing import CliRunner

from vramtui.cli.main import program

RUNNER = CliRunner()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["parallel.zero_stage=4"], "parallel.zero_stage is 4; it must be at most 3"),
        (["parallel.tensor=3"], "parallel.tensor = 3 does not divide model.num_attention_heads = 32"),
        (["parallel.pipeline=99"], "parallel.pipeline = 99 is more than model.num_hidden_layers = 32"),
        (["parallel.data=2", "parallel.expert=2"], "parallel.expert = 2: the model has no experts"),
        (["parallel.tensr=2"], "(did you mean tensor?)"),
    ],
)
@pytest.mark.parametrize("preset", ["llama-3.1-8b-full", "llama-3.1-8b-infer", "llama-3.1-8b-serve"])
def test_contradictions_end_with_2(preset: str, settings: list[str], sentence: str) -> None:
    chosen = [part for setting in settings for part in ("--set", setting)]
    done = RUNNER.invoke(program(["estimate"]), ["estimate", preset, *chosen])
    assert done.exit_code == 2, done.stdout
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_worst_rank_is_named_in_the_answer() -> None:
    done = RUNNER.invoke(program(["estimate"]), ["estimate", "llama-3.1-8b-full", "--set", "parallel.pipeline=4", "-v"])
    assert done.exit_code == 0
    assert "worst rank: pipeline rank" in done.stdout
    assert "parallel: pipeline 4\n" in done.stdout
