"""What `benchmarks/emulated_training.py` recorded of the emulated card, held against the recorded training runs."""

import json
from pathlib import Path

GOLDEN = Path(__file__).parents[1] / "golden"
FOLDERS = {"H200": "h200", "A100-80GB": "a100"}


def test_every_recorded_run_is_equal_to_the_byte() -> None:
    runs = json.loads((GOLDEN / "emulated" / "training.json").read_text(encoding="utf-8"))["runs"]
    names = {(FOLDERS[run["card"]], run["name"]) for run in runs}
    assert names == {(path.parent.name, path.stem) for path in (GOLDEN / "training").glob("*/*.json")}
    for run in runs:
        path = GOLDEN / "training" / FOLDERS[run["card"]] / f"{run['name']}.json"
        golden = json.loads(path.read_text(encoding="utf-8"))
        assert run["allocated"] == golden["peak_allocated"], run["name"]
        assert run["reserved"] == golden["peak_reserved"], run["name"]
        assert not run["difference"], run["name"]
