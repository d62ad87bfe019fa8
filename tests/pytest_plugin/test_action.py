"""action.yml step by step, as the runner does it: a recorded event, and a `gh` that writes down what it is asked."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped] # carries no types

ACTION = yaml.safe_load((Path(__file__).parents[2] / "action.yml").read_text(encoding="utf-8"))
PYTHON = """\
#!/bin/sh
case "$*" in
"-c import torch") {torch}; exit ;;
"-c import vramtui.cli") {vramtui}; exit ;;
"-m pip"*" uv") mkdir -p uv/bin; cp uv.sh uv/bin/uv; exit ;;
"-m pip"*) echo "$@" >> installed; exit ;;
"-m vramtui"*) ;;
*) exec {real} "$@" ;;
esac
shift 2
echo "$@" > asked
echo '{{"gpus": [{{"gpu": "T4", "verdict": "fits", "result": {{"peak_allocated": 123}}}}]}}'
exit {code}
"""
UV = """\
#!/bin/sh
echo "uv $@" >> installed
"""
GH = """\
#!/bin/sh
echo "$@" >> gh-asked
case "$*" in *--paginate*) {known} ;; *) {write} ;; esac
"""


TABLE = "| T4 | 0.00 GiB | ? | ? | fits |"


def expanded(value: str, values: dict[str, str]) -> str:
    return re.sub(r"\$\{\{ ([\w.-]+) \}\}", lambda match: values[match[1]], value)


def run(folder: Path, code: int, known: str, write: str = "true", has: str = "true", **inputs: str) -> int:
    python = PYTHON.format(code=code, torch=has, vramtui=has, real=sys.executable)
    for name, text in (("python", python), ("uv.sh", UV), ("gh", GH.format(known=known, write=write))):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (folder / "event.json").write_text(json.dumps({"action": "synchronize", "number": 7}))
    given = {f"inputs.{name}": str(told.get("default", "")) for name, told in ACTION["inputs"].items()}
    given |= {f"inputs.{name}": value for name, value in inputs.items()} | {"github.token": "t"}
    runner = {
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "RUNNER_TEMP": str(folder),
        "GITHUB_EVENT_PATH": str(folder / "event.json"), "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
        "GITHUB_OUTPUT": str(folder / "output"), "GITHUB_REPOSITORY": "some/project",
        "GITHUB_ACTION_PATH": "/the/action",
    }  # fmt: skip
    ended = 0
    for step in ACTION["runs"]["steps"]:
        if "inputs.comment" in step.get("if", "") and given["inputs.comment"] != "true":
            continue
        output = folder / "output"
        if output.exists():
            for line in output.read_text().splitlines():
                name, _, value = line.partition("=")
                given[f"steps.dry-run.outputs.{name}"] = value
        env = {name: expanded(expanded(str(value), given), given) for name, value in step.get("env", {}).items()}
        assert step["shell"] == "bash"
        # As the runner starts a bash step.
        ended = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=folder / expanded(step.get("working-directory", "."), given),
            env=runner | env,
            check=False,
        ).returncode
        if ended:
            break
    return ended


@pytest.mark.parametrize(("code", "known", "asks"), [(0, "true", "POST"), (1, "echo 42", "PATCH")])
def test_it_comments_and_ends_as_the_dry_run_did(tmp_path: Path, code: int, known: str, asks: str) -> None:
    assert run(tmp_path, code, known, target="train.py", arguments="--gpu T4") == code
    assert (tmp_path / "asked").read_text() == "dry-run --gpu T4 --json train.py\n"
    assert TABLE in (tmp_path / "summary.md").read_text()
    assert f"peak=123\ntable={tmp_path}/vramtui.md" in (tmp_path / "output").read_text()
    last: Any = (tmp_path / "gh-asked").read_text().splitlines()[-1]
    assert f"--method {asks}" in last
    assert ("issues/comments/42" in last) == (asks == "PATCH")
    assert (tmp_path / "vramtui.md").read_text().startswith("<!-- vramtui train.py -->")


def test_a_fork_whose_token_may_not_comment_and_without_a_comment(tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    where = {"working-directory": "part"}
    assert run(tmp_path, 0, "true", target="train.py", comment="false", **where) == 0
    assert not (tmp_path / "gh-asked").exists()
    assert (tmp_path / "part" / "asked").exists()  # it runs in the folder that is named
    for code in (0, 1):
        assert run(tmp_path, code, "true", write="exit 1", target="train.py") == code
        assert "--method POST" in (tmp_path / "gh-asked").read_text()
        assert TABLE in (tmp_path / "summary.md").read_text()


def test_it_installs_its_own_version_with_its_own_limits(tmp_path: Path) -> None:
    assert run(tmp_path, 0, "true", has="false", target="train.py") == 0
    torch, own = (tmp_path / "installed").read_text().splitlines()
    limits = "-m pip install --quiet -c /the/action/constraints.txt"
    cpu = "uv pip install --quiet --python python --torch-backend cpu -c /the/action/constraints.txt torch"
    assert (torch, own) == (cpu, f"{limits} /the/action")
    inputs = {"version": "vramtui==0.2.0", "torch-index": "../cpu-wheels"}
    assert run(tmp_path, 0, "true", has="false", target="train.py", **inputs) == 0
    assert (tmp_path / "installed").read_text().splitlines()[2:] == [
        f"{limits} -i ../cpu-wheels torch",
        f"{limits} vramtui==0.2.0",
    ]
