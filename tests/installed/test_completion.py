import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.installed.terminal import Terminal

SIZE = (100, 20)
PROMPT = "ready>"
# How each shell starts without settings of its own, and how it reads the script.
SHELLS = {
    "bash": (("bash", "--norc"), ". {script}; PS1='ready> '"),
    "zsh": (("zsh", "-f"), "autoload -Uz compinit; compinit -D -u; . {script}; PS1='ready> '"),
    "fish": (("fish", "--no-config", "--private"), "source {script}; function fish_prompt; echo 'ready> '; end"),
}
DETECTS_NOTHING = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}  # the shell is named instead
TYPED = {
    "vramtui es": "vramtui estimate ",
    "vramtui estimate gpt2-12": "vramtui estimate gpt2-124m ",
    "vramtui oom --preset gpt2-12": "vramtui oom --preset gpt2-124m ",
    "vramtui dry-run --gpu RTX409": "vramtui dry-run --gpu RTX4090",
    "vramtui fit gpt2-124m --set run.batch_s": "vramtui fit gpt2-124m --set run.batch_size=",
}


@pytest.mark.parametrize("shell", SHELLS)
def test_the_first_tab_completes(shell: str, program: str, tmp_path: Path) -> None:
    command, ready = SHELLS[shell]
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    asked, env = [program, "--show-completion", shell], {**os.environ, **DETECTS_NOTHING}
    script = tmp_path / "script"
    script.write_text(subprocess.run(asked, env=env, capture_output=True, text=True, check=True).stdout)
    path = f"{Path(program).parent}:{os.environ['PATH']}"
    with Terminal(command, size=SIZE, env={"PATH": path, "HOME": str(tmp_path)}, cwd=tmp_path) as terminal:
        terminal.send(ready.format(script=script) + "\n")
        # Not where it is only echoed, as a part of the line.
        terminal.wait(lambda screen: screen.rstrip().splitlines()[-1:] == [PROMPT], "a prompt")
        for typed, completed in TYPED.items():
            terminal.send(typed + "\t")
            terminal.wait_for(f"{PROMPT} {completed.rstrip()}")
            terminal.send("\x15")
