"""Tab in the shells themselves, by the scripts that `vramtui completion` prints."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.installed.terminal import Terminal

SIZE = (100, 20)
PROMPT = "ready>"
# How each shell starts without anybody's own settings, and what makes it read the script at its usual place.
SHELLS = {
    "bash": (("bash", "--norc"), "vramtui", ". {folder}/vramtui; PS1='ready> '"),
    "zsh": (
        ("zsh", "-f"),
        "_vramtui",
        "fpath=({folder} $fpath); autoload -Uz compinit; compinit -D -u; PS1='ready> '",
    ),
    "fish": (
        ("fish", "--no-config", "--private"),
        "vramtui.fish",
        "set -p fish_complete_path {folder}; function fish_prompt; echo 'ready> '; end",
    ),
}
TYPED = {
    "vramtui es": "vramtui estimate ",
    "vramtui estimate gpt2-12": "vramtui estimate gpt2-124m ",
    "vramtui oom --preset gpt2-12": "vramtui oom --preset gpt2-124m ",
    "vramtui trace t.py --device RTX409": "vramtui trace t.py --device RTX4090 ",
    "vramtui fit gpt2-124m --set run.batch_s": "vramtui fit gpt2-124m --set run.batch_size=",
}


@pytest.mark.parametrize("shell", SHELLS)
def test_the_first_tab_completes(shell: str, program: str, tmp_path: Path) -> None:
    """The very first one too, at which a shell that loads the script by need reads it."""
    command, file, ready = SHELLS[shell]
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = subprocess.run([program, "completion", shell], capture_output=True, text=True, check=True).stdout
    (tmp_path / file).write_text(script)
    path = f"{Path(program).parent}:{os.environ['PATH']}"
    with Terminal(command, size=SIZE, env={"PATH": path, "HOME": str(tmp_path)}, cwd=tmp_path) as terminal:
        terminal.send(ready.format(folder=tmp_path) + "\n")
        # Not where it is only echoed, as a part of the line.
        terminal.wait(lambda screen: screen.rstrip().splitlines()[-1:] == [PROMPT], "a prompt")
        for typed, completed in TYPED.items():
            terminal.send(typed + "\t")
            terminal.wait_for(f"{PROMPT} {completed.rstrip()}")
            terminal.send("\x15")
