import re
import subprocess
import sys

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from tests.commands import invoke
from tests.tables import rows
from vramtui.cli.main import COMMANDS, program
from vramtui.cli.options import COMMANDS as WORDED
from vramtui.cli.options import MORE, help_screen

ROOT_OPTIONS = {
    "--demo": (),
    "--replay": ("x.jsonl",),
    "--host": ("gpu01",),
    "--slurm": ("42",),
    "--prometheus": ("http://127.0.0.1:9",),
    "--token-file": ("token",),
    "--feed": ("-",),
    "--interval": ("2",),
    "--preset": ("gpt2-124m",),
    "--no-signals": (),
    "--view-only": (),
    "--monitor": (),
    "--only": ("0",),
    "--once": (),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_an_option_before_a_command_is_never_dropped(command: str) -> None:
    """`vramtui --host gpu01 ps` listed this machine's processes, and ended with 0."""
    app = program((command,))
    for option, values in ROOT_OPTIONS.items():
        given = CliRunner().invoke(app, [option, *values, command], env={"COLUMNS": "200"})
        assert given.exit_code == 2, (option, command, given.output)
        said = f"{option} goes after the command: vramtui {command} {option}"
        assert said in given.output or f"{option} is an option of the dashboard; vramtui {command} does" in given.output


def test_every_option_of_the_root_is_tried_and_help_lists_every_command_on_one_screen() -> None:
    names = {max(parameter.opts, key=len) for parameter in get_command(program(())).params}
    assert names - {"--version", "--help", "--install-completion", "--show-completion"} == ROOT_OPTIONS.keys()
    assert WORDED.keys() == {*COMMANDS}
    assert len(COMMANDS) <= 16
    lines = help_screen().splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    for words in (["--help"], ["-h"]):
        done = subprocess.run([sys.executable, "-m", "vramtui", *words], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines() == lines


@pytest.mark.parametrize("command", sorted({*COMMANDS} - {"presets", "run", "dry-run"}))
def test_help_of_a_command_begins_with_an_example_and_its_common_options(command: str) -> None:
    shown = invoke(command, "--help", columns=80).output
    first = shown[: shown.index("╰", shown.index("╭─ Options"))]
    assert len(first.splitlines()) <= 24
    assert MORE not in first
    assert re.search(r"Usage: .*\n\s*\n\s*(ssh gpu01 )?vramtui ", first)


@pytest.mark.parametrize(
    ("typed", "answer"), rows(__file__, "a_word_that_is_no_command_is_answered_with_what_it_may_mean")
)
def test_a_word_that_is_no_command_is_answered_with_what_it_may_mean(typed: str, answer: str) -> None:
    given = invoke(*typed.split(), columns=200)
    assert given.exit_code == 2
    assert f"No such command '{typed.rsplit(maxsplit=1)[-1]}'. " in given.output
    assert answer in given.output


@pytest.mark.parametrize(("typed", "answer"), [
    ("ps --interval abc", "'abc' is not a number."),
    ("fit Qwen3-8B --gpu H100 --gpus two", "'two' is not a whole number."),
    ("estimate qwen3 9b", "(9b). No known model has these words as its name; vramtui fit A B compares several"),
    ("estimate python -m vllm.serve", "the command names no model"), ("estimate vllm serve", "names no model"),
])  # fmt: skip
def test_a_value_of_another_type_is_answered_in_words(typed: str, answer: str) -> None:
    given = invoke(*typed.split(), columns=200)
    assert given.exit_code == 2
    assert answer in given.output


@pytest.mark.parametrize(("command", "example"), [("estimate", "vramtui estimate Qwen3-8B --gpu 4090"), ("oom", "")])
def test_a_word_that_is_missing_is_shown_in_an_example(command: str, example: str) -> None:
    given = invoke(command, columns=200, input="")
    assert given.exit_code == 2
    assert (f"As in: {example}" in given.output) == bool(example)
