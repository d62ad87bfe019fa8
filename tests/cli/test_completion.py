import os
import re
import subprocess
import sys

import pytest

from tests.commands import invoke
from tests.tables import rows
from vramtui.cli.main import COMMANDS
from vramtui.cli.options import COMMANDS as WORDED

PYTHON = (sys.executable, "-m", "vramtui")


def completed(typed: str, **more: str) -> list[str]:
    words = typed.split(" ")
    asked = {"_VRAMTUI_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run(PYTHON, env={**os.environ, **asked, **more}, capture_output=True, text=True, check=False)
    return done.stdout.split()


@pytest.mark.parametrize(("typed", "found"), rows(__file__, "tab_in_bash"))
def test_tab_in_bash(typed: str, found: list[str]) -> None:
    assert completed(typed) == found


def test_help_has_examples_and_exit_codes_for_every_command() -> None:
    assert sorted(COMMANDS) == sorted(WORDED)
    assert all("vramtui " in line for worded in WORDED.values() for line in worded["examples"])
    one = invoke("fit", "--help", columns=100).stdout
    assert "vramtui fit Llama-3.1-8B --train --gpu h100" in one
    assert "Exit codes: 0 success" in one


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_a_word_for_what_an_option_takes(name: str) -> None:
    shown = invoke(name, "--help", columns=100).stdout
    assert not re.findall(r"<(?:str|path|int|int range|float|float range|text|integer)>", shown)
    assert "{" not in next(line for line in shown.splitlines() if "Usage:" in line)
