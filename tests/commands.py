"""Commands of the program, run in this process."""

from typer.testing import CliRunner, Result

from vramtui.cli.main import COMMANDS, program


def invoke(*words: str, columns: int | None = None, **given: str) -> Result:
    """Run a command as it is typed, loaded as the program loads it; `given` are arguments of click's runner."""
    env = {} if columns is None else {"COLUMNS": f"{columns}"}
    return CliRunner(env=env).invoke(program(words[:1] if words[0] in COMMANDS else COMMANDS), words, **given)  # type: ignore[arg-type]  # as click has them
