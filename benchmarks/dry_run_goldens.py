"""The 40 recorded training runs by an engine of the dry run: `python -m benchmarks.dry_run_goldens --engine fake`.

`--engine cuda --python PYTHON` runs them with PyTorch's CUDA build on a simulated GPU. PYTHON is an interpreter with
torch 2.13.0's CUDA build, numpy and transformers 5.23.0. Each phase's figures are compared with the recording, to the
byte: with the fake engine four of every phase, with the CUDA engine both peaks and what each phase leaves.
`--record FILE` writes the result as JSON. Exit code 1 if a run differs.
"""

import argparse
import gc
import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.recorded.golden_runs import FIGURES, recorded, request_for
from vramtui.core.base.errors import UserError

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden" / "training"
CARDS = {"h200": "H200", "a100": "A100-80GB"}
PHASES = ("forward", "backward", "step")
LOADED = ("torch", "transformers.models.llama.modeling_llama", "transformers.models.gpt2.modeling_gpt2")


def differs_with_cuda(python: str, path: Path, figures: dict[str, Any]) -> str:
    """The first figure that differs from the recording on a simulated GPU; empty if none does. `figures` gets peaks."""
    command = [sys.executable, "-m", "vramtui", "dry-run", "--gpu", CARDS[path.parent.name], "--steps", "0", "--json"]
    job = [python, str(ROOT / "benchmarks" / "golden_training.py"), path.stem]
    ran = subprocess.run([*command, *job], capture_output=True, text=True, check=False, cwd=ROOT, timeout=1800)
    if not ran.stdout.startswith("{"):
        return ran.stderr[-500:]
    found: dict[str, Any] = json.loads(ran.stdout)["gpus"][0]["result"]
    figures |= {key: found[key] for key in ("peak_allocated", "peak_reserved", "bounded")}
    golden = json.loads(path.read_text(encoding="utf-8"))
    for peak in ("peak_allocated", "peak_reserved"):
        if found[peak] != golden[peak]:
            return f"{peak} {found[peak]} for {golden[peak]}"
    ends = {(row[0], row[1]): (row[2], row[3]) for row in golden["rows"]}  # the last of a phase, as with accumulation
    told = {(one["phase"], one["step"]): (one["allocated"], one["reserved"]) for one in found["timeline"]}
    for key, end in ends.items():
        if key[0] in PHASES and told.get(key) != end:
            return f"{key[0]} of step {key[1]}: {told.get(key)} for {end}"
    return ""


def differs_on_fake_tensors(path: Path) -> str:
    """The first phase that differs on fake tensors, in a fork of this process; empty if none does."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, _first_difference(path).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        said = answer.read()
    return said if not os.waitpid(child, 0)[1] else said or "the process ended without an answer"


def _first_difference(path: Path) -> str:
    from vramtui.dryrun.fake.child import trace_here  # noqa: PLC0415 - loads torch in a fork only

    true = [(row["phase"], row["step"], *(row[figure] for figure in FIGURES)) for row in recorded(path)]
    try:
        result = trace_here(request_for(path.stem, path.parent.name), lambda _progress: None)
    except UserError as error:
        return str(error)
    mine = [(row.phase, row.step, *(getattr(row, figure) for figure in FIGURES)) for row in result.timeline]
    if len(mine) != len(true):
        return f"{len(mine)} phases for {len(true)}"
    return next((f"{ours} for {theirs}" for ours, theirs in zip(mine, true, strict=True) if ours != theirs), "")


def main() -> int:
    """Run them and print a line for each."""
    asked = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    asked.add_argument("names", nargs="*", help="runs whose name has one of these in it")
    asked.add_argument("--engine", choices=("fake", "cuda"), default="fake")
    asked.add_argument("--python", default=sys.executable, help="for the engine cuda: has PyTorch's CUDA build")
    asked.add_argument("--record", type=Path)
    options = asked.parse_args()
    if options.engine == "fake":
        os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONWARNINGS": "ignore"}
        for name in (*LOADED, "vramtui.dryrun.fake.session"):
            importlib.import_module(name)
        gc.freeze()  # a fork that looked through it for garbage would copy every page of it
    rows = []
    for path in sorted(GOLDEN.glob("*/*.json")):
        if options.names and not any(name in path.stem for name in options.names):
            continue
        since, figures = time.perf_counter(), dict[str, Any]()
        if options.engine == "fake":
            off = differs_on_fake_tensors(path)
        else:
            off = differs_with_cuda(options.python, path, figures)
        seconds = round(time.perf_counter() - since, 1)
        rows.append(
            {"card": CARDS[path.parent.name], "name": path.stem, "difference": off, "seconds": seconds, **figures}
        )
        print(f"{CARDS[path.parent.name]:10} {path.stem:36} {seconds:6.1f} s  {off or 'equal'}", flush=True)
    equal = sum(not row["difference"] for row in rows)
    print(f"{equal} of {len(rows)} equal to the byte")
    if options.record is not None:
        document = {"engine": options.engine, "equal": equal, "runs": rows}
        options.record.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return int(equal < len(rows))


if __name__ == "__main__":
    raise SystemExit(main())
