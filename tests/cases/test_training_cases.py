"""Jobs of public reports as people bring them: training files, commands and container files, with what is true of each.

One TOML file a case: its source, the situation, the command after `vramtui`, its files, the exit code, words that the
answer must have and must not have, if somebody measured it the peak in GiB (`process`, `reserved` or `allocated`), and
the reason if today's answer is `wrong`, if only its stated `range` has the peak, or if the report is `disputed`.
"""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from vramtui.cli.main import program
from vramtui.core.base import toml

FOLDER = Path(__file__).parent / "training"
CASES = {path.stem: toml.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.toml"))}
TOLERANCE, MOST_RANGE = 0.1, 3
IN_RANGE = "in its stated range:"


@pytest.fixture(autouse=True)
def own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VRAMTUI_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "1000")
    monkeypatch.chdir(tmp_path)


def faults(case: dict[str, Any]) -> list[str]:
    for name, text in case.get("files", {}).items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.lstrip("\n"), encoding="utf-8")
    command, *words = shlex.split(case["command"])
    done = CliRunner().invoke(program((command,)), [command, *words])
    answer = done.output
    found = []
    if done.exit_code != case["exit"]:
        tight = f"{IN_RANGE} " if case["exit"] == 1 and "tight on" in answer else ""
        found = [f"{tight}exit code {done.exit_code}, not {case['exit']}"]
    found += [f"lacks {word!r}" for word in case.get("must", []) if word not in answer]
    found += [f"has {word!r}" for word in case.get("never", []) if word in answer]
    figure = next((key for key in ("process", "reserved", "allocated") if key in case), None)
    if figure is not None and done.exit_code in {0, 1}:
        document = json.loads(CliRunner().invoke(program((command,)), [command, "--json", *words]).stdout)
        estimate = document["estimates"][0]
        predicted, process = estimate[figure] / 2**30, estimate["process"] / 2**30
        more = (estimate["error"] or 0) * process
        less = more if estimate["error_below"] is None else estimate["error_below"] * process
        if abs(predicted / case[figure] - 1) > case.get("within", TOLERANCE):
            is_in = predicted - less <= case[figure] <= predicted + more <= MOST_RANGE * (predicted - less)
            found.append(f"{IN_RANGE if is_in else ''} {figure} {predicted:.1f} GiB, measured {case[figure]}".strip())
    return [*found, answer] if found else []


def verdict_of(case: dict[str, Any], found: list[str]) -> str:
    if "disputed" in case:
        return "disputed"
    return "right" if not found else "in range" if all(one.startswith(IN_RANGE) for one in found[:-1]) else "wrong"


@pytest.mark.parametrize("name", CASES)
def test_each_job_is_answered(name: str) -> None:
    found = faults(CASES[name])
    expected = {"wrong": "wrong", "range": "in range", "disputed": "disputed"}
    assert verdict_of(CASES[name], found) == next((expected[key] for key in expected if key in CASES[name]), "right"), (
        found
    )


def test_the_cases_are_enough() -> None:
    assert len(CASES) >= 40
    assert sum("wrong" in case for case in CASES.values()) <= len(CASES) // 4
