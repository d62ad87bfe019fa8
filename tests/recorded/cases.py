"""Cases of public reports, run as their commands would be typed, and compared with what is true.

A case is a TOML file under `tests/cases/KIND`: its source, the situation, the command, and what is true: `exit`, and
the figures of `[truth]` as the report states them. Several rows of one page are a list `[[case]]` in one file.
A case is *right* if the exit code is the true one and every figure is within its tolerance (10 % if none is given),
*partly* if the exit code is, and a figure is; *in range* if the answer states a range, with its reason, that every
other figure is in; *disputed* if its report contradicts itself; *unhelpful* if the command gives no answer, and *wrong*
otherwise.
"""

import os
import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import msgspec
from typer.testing import CliRunner

from tests.cases import test_oom_cases, test_training_cases
from vramtui.cli.main import program
from vramtui.core.base import toml

FOLDER = Path(__file__).parents[1] / "cases"
TOLERANCE = 0.1
UNITS = {"MiB": 2**20, "GiB": 2**30, "GB": 10**9, "MB": 10**6, "KiB": 2**10, "B": 1}
VERDICTS = ("right", "partly", "in range", "wrong", "unhelpful", "disputed")
ANSWERS = (0, 1)  # exit codes of an answer: it fits, it does not


class Outcome(NamedTuple):
    """One case: its verdict, and of each figure (predicted, true); None for a figure that the answer lacks."""

    kind: str
    name: str
    verdict: str
    figures: dict[str, tuple[float | None, float]]
    answer: str


def figure(text: float | str) -> float:
    match = re.fullmatch(r"(-?[\d.,]+)\s*([A-Za-z]+)?", str(text))
    if match is None or (match[2] or "B") not in UNITS:
        raise ValueError(f"{text!r} is not a figure with a known unit")
    return float(match[1].replace(",", "")) * UNITS[match[2] or "B"]


def predicted(document: dict[str, Any]) -> dict[str, float]:
    estimate = document["estimates"][0]
    figures = {part["name"].replace(" ", "_"): part["at_peak"] for part in estimate["parts"]}
    figures |= {line: size for line, size in estimate["ledger"].items() if size is not None}
    tokens = re.search(r"room for (-?[\d,]+) tokens", " ".join(estimate["assumptions"]))
    if tokens:
        figures["kv_tokens"] = float(tokens[1].replace(",", ""))
    return figures


def in_range(key: str, found: dict[str, float], true: float, answer: str) -> bool:
    """Whether the answer states a range with the true figure in it; that of tokens is the cache's."""
    name = key.replace("_tokens", "_cache").replace("_", " ")
    stated = re.search(rf"{name} ([\d.]+) (\w*B) to ([\d.]+) (\w*B)", answer)
    if stated is None or not found.get(key):
        return False
    least, most = figure(f"{stated[1]} {stated[2]}"), figure(f"{stated[3]} {stated[4]}")
    each = found[key] / found["kv_cache"] if key.endswith("tokens") else 1.0
    return least * each <= true <= most * each


def outcome(kind: str, name: str, case: dict[str, Any]) -> Outcome:
    words = shlex.split(case["command"])[1:]
    result = CliRunner().invoke(program(words[:1]), [words[0], "--json", *words[1:]])
    found: dict[str, float] = {}
    if result.stdout.startswith("{"):
        found = predicted(msgspec.json.decode(result.stdout))
    allowed = case.get("tolerance", {})
    allowed = allowed if isinstance(allowed, dict) else dict.fromkeys(case.get("truth", {}), allowed)
    figures, within, stated = {}, [], []
    for key, text in case.get("truth", {}).items():
        true, guess = figure(text), found.get(key)
        figures[key] = (guess, true)
        within.append(guess is not None and abs(guess - true) <= allowed.get(key, TOLERANCE) * abs(true))
        stated.append(within[-1] or in_range(key, found, true, result.stdout))
    is_right = result.exit_code == case.get("exit", result.exit_code) and all(within)
    if not is_right and stated and all(stated):
        return Outcome(kind, name, "in range", figures, result.output)
    if result.exit_code not in ANSWERS or not (found or case.get("exit") == 1):
        verdict = "unhelpful"
    elif result.exit_code != case.get("exit", result.exit_code):
        verdict = "wrong"
    else:
        verdict = "right" if all(within) else "partly" if any(within) else "wrong"
    return Outcome(kind, name, verdict, figures, result.output)


def in_words(kind: str, name: str, case: dict[str, Any]) -> Outcome:
    """The outcome of a case that says which words its answer has: a message, or a job with its files."""
    here = Path.cwd()
    with TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            faults = (test_oom_cases if kind == "oom" else test_training_cases).faults(case)
        finally:
            os.chdir(here)
    return Outcome(kind, name, test_training_cases.verdict_of(case, faults), {}, "\n".join(faults))


def cases(kinds: Iterable[str] = ()) -> Iterator[tuple[str, str, dict[str, Any]]]:
    chosen = tuple(kinds)
    for path in sorted(FOLDER.glob("*/*.toml")):
        if chosen and path.parent.name not in chosen:
            continue
        table = toml.loads(path.read_text(encoding="utf-8"))
        for row in table.get("case", [{}]):
            name = f"{path.stem} {row['name']}" if row else path.stem
            yield path.parent.name, name, {**table, **row}


def outcomes(kinds: Iterable[str] = ()) -> list[Outcome]:
    return [(in_words if row[0] in {"oom", "training"} else outcome)(*row) for row in cases(kinds)]
