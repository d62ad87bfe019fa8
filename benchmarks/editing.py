"""What one keystroke in the preset editor costs before anything is drawn: `python benchmarks/editing.py`.

For the shipped presets with the longest text: a value set in the form, a letter typed into the text, a step undone and
done again, each with the problems, the preset and the form that the screen shows after it; and the analytic estimate,
which comes on top.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from vramtui.core.estimate.devices import DEFAULT_CARD, card
from vramtui.core.schema.decoder_models import RuleModel
from vramtui.estimators.analytic import ANALYTIC
from vramtui.presets import PresetLibrary
from vramtui.presets.draft.draft import Draft

LIMIT = 0.005
PRESETS = 5


def main() -> int:
    """Print the medians and 95th percentiles in milliseconds; 1 when setting a value takes longer than 5 ms at p95."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="One JSON document.")
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args()
    library = PresetLibrary(Path("no such folder"))
    found = [preset for preset in library.all() if not isinstance(preset.preset.model, RuleModel)]
    found.sort(key=lambda preset: -Path(preset.path).stat().st_size)
    figures = {preset.key: _measure(Draft.open(preset), options.rounds) for preset in found[:PRESETS]}
    if options.json:
        print(json.dumps({"schema": 1, "milliseconds": figures}, indent=2))
    else:
        _table(figures)
    return int(any(steps["set a value"]["p95"] > LIMIT * 1e3 for steps in figures.values()))


def _measure(draft: Draft, rounds: int) -> dict[str, dict[str, float]]:
    device = card(DEFAULT_CARD)
    text = draft.text

    def looked_at() -> None:
        _ = draft.problems, draft.preset, draft.is_current, draft.form

    def set_value(number: int) -> None:
        draft.edits.set_value("run.batch_size", str(number % 64 + 1))

    def type_letter(number: int) -> None:
        draft.edits.set_text(f"{text}# {'x' * (number % 40)}\n")

    def type_nonsense(number: int) -> None:
        draft.edits.set_text(f"{text}= {'x' * (number % 40)}\n")

    def estimate(_number: int) -> None:
        if draft.preset is not None:
            ANALYTIC.estimate(draft.preset.workload, device)

    steps: dict[str, Callable[[int], None]] = {
        "set a value": set_value,
        "type in the text": type_letter,
        "type what is no TOML": type_nonsense,
        "undo and redo": lambda number: draft.edits.redo() if number % 2 else draft.edits.undo(),
    }
    figures = {name: _times(step, looked_at, rounds) for name, step in steps.items()}
    return figures | {"estimate": _times(estimate, lambda: None, rounds)}


def _times(step: Callable[[int], None], after: Callable[[], None], rounds: int) -> dict[str, float]:
    times = []
    for number in range(rounds):
        start = time.perf_counter()
        step(number)
        after()
        times.append((time.perf_counter() - start) * 1e3)
    return {"median": round(statistics.median(times), 3), "p95": round(sorted(times)[int(0.95 * rounds)], 3)}


def _table(figures: dict[str, dict[str, dict[str, float]]]) -> None:
    for name, steps in figures.items():
        print(name)
        for step, figure in steps.items():
            print(f"  {step:24} {figure['median']:7.2f} ms median {figure['p95']:7.2f} ms p95")


if __name__ == "__main__":
    raise SystemExit(main())
