"""action.yml step by step, as the runner does it: a recorded event, and a `gh` that writes down what it is asked."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped] # carries no types

ACTION = yaml.safe_load((Path(__file__).parents[2] / "action.yml").read_text(encoding="utf-8"))
TRACER = """\
#!/bin/sh
echo "$@" > asked
while [ "$1" != --markdown ]; do shift; done
echo "| a table |" >> "$2"
echo "vramtui: peak allocated grew" >&2
exit {code}
"""
GH = """\
#!/bin/sh
echo "$@" >> gh-asked
case "$*" in *--paginate*) {known} ;; *) {write} ;; esac
"""


def expanded(value: str, values: dict[str, str]) -> str:
    return re.sub(r"\$\{\{ ([\w.-]+) \}\}", lambda match: values[match[1]], value)


def run(folder: Path, code: int, known: str, write: str = "true", **inputs: str) -> int:
    """The exit code of the last step; what was printed and asked is in the folder."""
    for name, text in (("vramtui", TRACER.format(code=code)), ("gh", GH.format(known=known, write=write))):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (folder / "event.json").write_text(json.dumps({"action": "synchronize", "number": 7}))
    given = {f"inputs.{name}": str(told.get("default", "")) for name, told in ACTION["inputs"].items()}
    given |= {f"inputs.{name}": value for name, value in inputs.items()} | {"github.token": "t"}
    runner = {
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "RUNNER_TEMP": str(folder),
        "GITHUB_EVENT_PATH": str(folder / "event.json"),
        "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
        "GITHUB_OUTPUT": str(folder / "output"),
        "GITHUB_REPOSITORY": "some/project",
    }
    ended = 0
    for step in ACTION["runs"]["steps"]:
        if "inputs.comment" in step.get("if", "") and given["inputs.comment"] != "true":
            continue
        output = folder / "output"
        if output.exists():
            name, _, value = output.read_text().strip().partition("=")
            given[f"steps.trace.outputs.{name}"] = value
        env = {name: expanded(expanded(str(value), given), given) for name, value in step.get("env", {}).items()}
        assert step["shell"] == "bash"
        # As the runner starts a bash step.
        ended = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=folder,
            env=runner | env,
            check=False,
        ).returncode
        if ended:
            break
    return ended


@pytest.mark.parametrize(("code", "known", "asks"), [(0, "true", "POST"), (1, "echo 42", "PATCH")])
def test_it_comments_and_ends_as_the_trace_did(tmp_path: Path, code: int, known: str, asks: str) -> None:
    assert run(tmp_path, code, known, target="train.py:step", arguments="--device T4") == code
    asked = (tmp_path / "asked").read_text()
    assert asked.startswith("trace train.py:step --device T4 --baseline vram_baseline.json --fail-over 2% --markdown")
    assert "| a table |" in (tmp_path / "summary.md").read_text()
    last: Any = (tmp_path / "gh-asked").read_text().splitlines()[-1]
    assert f"--method {asks}" in last
    assert ("issues/comments/42" in last) == (asks == "PATCH")
    assert (tmp_path / "vramtui.md").read_text().startswith("<!-- vramtui train.py:step -->")


@pytest.mark.parametrize("code", [0, 1])
def test_a_fork_whose_token_may_not_comment_ends_as_the_trace_did(tmp_path: Path, code: int) -> None:
    assert run(tmp_path, code, "true", write="exit 1", target="train.py") == code
    assert "--method POST" in (tmp_path / "gh-asked").read_text()
    assert "| a table |" in (tmp_path / "summary.md").read_text()


def test_without_a_comment(tmp_path: Path) -> None:
    assert run(tmp_path, 0, "true", target="train.py", comment="false") == 0
    assert not (tmp_path / "gh-asked").exists()
