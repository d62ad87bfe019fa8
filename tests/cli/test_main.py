"""The command line as a whole: options that stand before a command."""

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from vramtui.cli.groups import GROUPS
from vramtui.cli.main import COMMANDS, listed_program, program

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
    runner = CliRunner()
    for option, values in ROOT_OPTIONS.items():
        given = runner.invoke(app, [option, *values, command], env={"COLUMNS": "200"})
        assert given.exit_code == 2, (option, command, given.output)
        said = f"{option} stands behind the command: vramtui {command} {option}"
        assert said in given.output or f"{option} is the dashboard's, and vramtui {command} has no" in given.output


def test_every_option_of_the_root_is_tried() -> None:
    root = get_command(program(()))
    names = {max(parameter.opts, key=len) for parameter in root.params}
    assert names - {"--version", "--help", "--install-completion", "--show-completion"} == ROOT_OPTIONS.keys()


def test_commands_are_listed_by_the_first_sentence_of_their_own_help() -> None:
    loaded = get_command(program()).commands  # type: ignore[attr-defined]  # a group has them
    listed = {name: summary for commands in GROUPS.values() for name, summary in commands.items()}
    assert listed == {name: " ".join(one.help.split("\n\n")[0].split()) for name, one in loaded.items()}


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_the_list_of_commands_is_that_of_the_whole_program(word: str) -> None:
    shown = [CliRunner().invoke(app, [word], env={"COLUMNS": "80"}).output for app in (program(), listed_program())]
    assert sorted(shown[0].splitlines()) == sorted(shown[1].splitlines())


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("watch", "The dashboard is vramtui alone."),
        ("monitor", "vramtui --monitor."),
        ("plan", "It is a screen of the dashboard: vramtui."),
        ("version", "Write vramtui --version."),
        ("train.py", "vramtui trace train.py"),
        ("Qwen3-8B", "vramtui estimate Qwen3-8B."),
        ("day.jsonl.gz", "vramtui --replay day.jsonl.gz."),
        ("estmate", "Did you mean 'estimate'?"),
    ],
)
def test_a_word_that_is_no_command_is_answered_with_what_it_may_mean(typed: str, answer: str) -> None:
    given = CliRunner().invoke(program(), [typed], env={"COLUMNS": "200"})
    assert given.exit_code == 2
    assert f"No such command '{typed}'. " in given.output
    assert answer in given.output


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("ps --interval abc", "'abc' is no number."),
        ("fit Qwen3-8B --gpu H100 --gpus two", "'two' is no whole number."),
        ("estimate Qwen3-8B Qwen3-4B", "One model; several stand beside each other in vramtui fit A B."),
    ],
)
def test_a_value_of_another_type_is_answered_in_words(typed: str, answer: str) -> None:
    given = CliRunner().invoke(program((typed.partition(" ")[0],)), typed.split(), env={"COLUMNS": "200"})
    assert given.exit_code == 2
    assert answer in given.output


@pytest.mark.parametrize(
    ("command", "example"), [("estimate", "vramtui estimate Qwen3-8B --gpu 4090"), ("oom", ""), ("fit", "vramtui fit ")]
)
def test_a_word_that_is_missing_is_shown_in_an_example(command: str, example: str) -> None:
    given = CliRunner().invoke(program((command,)), [command], env={"COLUMNS": "200"}, input="")
    assert given.exit_code == 2
    assert (f"As in: {example}" in given.output) == bool(example)
