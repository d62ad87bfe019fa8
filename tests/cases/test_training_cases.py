"""Jobs of public reports as people bring them: training files, commands and container files, with what is true of each.

One TOML file a case: its source, the situation, the command after `vramtui`, its files, the exit code, words that the
answer must have and must not have, and, if somebody measured it, the peak in GiB (`process` or `reserved`).
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
TOLERANCE = 0.1
# What is wrong in an answer today, with the reason; the list may only shrink.
KNOWN_WRONG: dict[str, str] = dict.fromkeys(
    (
        "accelerate-fsdp",
        "axolotl-1813",
        "axolotl-2412",
        "axolotl-apertus",
        "axolotl-devstral",
        "axolotl-gpt-oss-fsdp-4",
        "axolotl-gpt-oss-fsdp-8",
        "axolotl-gpt-oss-lora",
        "axolotl-gpt-oss-offload",
        "axolotl-magistral",
        "axolotl-seed-oss",
        "fit-qlora",
        "gguf-unknown-type",
        "gpu-two-sizes",
        "gpus-several",
        "llamafactory-10367",
        "llamafactory-3035",
        "llamafactory-6011",
        "llamafactory-6999",
        "option-twice",
        "qlora-8b-4090",
        "serve-ollama",
        "torchtune-70b-lora",
        "torchtune-70b-offload",
        "torchtune-8b-full",
        "torchtune-8b-lora",
        "torchtune-8b-qlora",
        "trl-1111",
        "vllm-12308",
    ),
    "not read yet",
)


@pytest.fixture(autouse=True)
def own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VRAMTUI_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "1000")
    monkeypatch.chdir(tmp_path)


def faults(case: dict[str, Any]) -> list[str]:
    """What the answer to a case lacks or has wrong, and the answer."""
    for name, text in case.get("files", {}).items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.lstrip("\n"), encoding="utf-8")
    command, *words = shlex.split(case["command"])
    done = CliRunner().invoke(program((command,)), [command, *words])
    answer = done.output
    found = [] if done.exit_code == case["exit"] else [f"exit code {done.exit_code}, not {case['exit']}"]
    found += [f"lacks {word!r}" for word in case.get("must", []) if word not in answer]
    found += [f"has {word!r}" for word in case.get("never", []) if word in answer]
    figure = next((key for key in ("process", "reserved") if key in case), None)
    if figure is not None and done.exit_code in {0, 1}:
        document = json.loads(CliRunner().invoke(program((command,)), [command, "--json", *words]).stdout)
        predicted = document["estimates"][0][figure] / 2**30
        if abs(predicted / case[figure] - 1) > case.get("within", TOLERANCE):
            found.append(f"{figure} {predicted:.1f} GiB, measured {case[figure]}")
    return [*found, answer] if found else []


@pytest.mark.parametrize("name", CASES)
def test_each_job_is_answered(name: str) -> None:
    assert bool(faults(CASES[name])) == (name in KNOWN_WRONG), faults(CASES[name])


def test_the_cases_are_enough() -> None:
    assert len(CASES) >= 40
