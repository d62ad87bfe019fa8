"""Ten scripts and more on the present GPU and under `run --on` the same card: `python -m benchmarks.emulated`.

    python -m benchmarks.emulated --card H100 --out FOLDER           # both sides, then JSON on standard output
    python -m benchmarks.emulated --card H200 --through JUDGE/run/fake --python JUDGE/bin/python …

Each script of `scripts/` runs twice by the same Python, once as it is and once with `vramtui run --on CARD`, and
`measure.py` notes the same counters of PyTorch's allocator both times. On the GPU one runs after the other, on the
emulated card beside them. JSON: for each script and counter the real figure, the emulated one and the difference, for
the peaks, the end and after each optimizer step; the first request to the allocator that differs; and what `run --on`
said by itself. FOLDER keeps what each run printed. Exit code 1 where a figure differs, 2 where a side has none.

`--real tests/golden/card/scripts.json` takes what an H200 answered once in place of a GPU (torch 2.11.0, with
TORCH_CUBLASLT_UNIFIED_WORKSPACE=1, which the emulated side then needs as well). `--through COMMAND` stands before the
real runs, as the stubbed driver that development measures with; `--python` is the job's Python where it is not this
one. It needs a C compiler, and for its custom kernel nvcc.
"""

import argparse
import gzip
import json
import os
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
COUNTERS = ("max_allocated", "max_reserved", "allocated", "reserved")
# In this order, so that where time runs out the usual jobs have been measured.
SCRIPTS = (
    "gpt", "llama_checkpoint", "lora", "unet_native", "resnet50", "compiled", "graphs", "generate", "largest_batch",
    "kernels", "lstm", "ddp", "sizes",
)  # fmt: skip
MOST_PRINTED = 1 << 19  # bytes of what a script printed on the GPU


def run_real(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """What one script took on the GPU that is there, or took there once."""
    out = options.out / f"{name}.real.json"
    if options.real is not None:
        kept: dict[str, Any] = json.loads(options.real.read_text(encoding="utf-8"))["scripts"]
        return kept.get(name, {"error": "not kept"})  # type: ignore[no-any-return]  # JSON
    command = [*shlex.split(options.through), options.python, str(FOLDER / "measure.py"), str(out)]
    return _run(command, out, "real", options.longest)


def run_emulated(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """What it took on the emulated card, with what `run --on` said."""
    out = options.out / f"{name}.emulated.json"
    vramtui = [sys.executable, "-m", "vramtui", "run", "--on", options.card, "--json", "--keep-files", "--"]
    command = [*vramtui, options.python, str(FOLDER / "measure.py"), str(out)]
    return _run(command, out, "emulated", options.longest)


def _run(command: list[str], out: Path, side: str, longest: float) -> dict[str, Any]:
    out.unlink(missing_ok=True)
    log = out.with_suffix(".log")
    caches = {key: str(out.parent / f"{side}-{key}") for key in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")}
    environment = {**os.environ, **caches, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    name = out.name.partition(".")[0]
    script = str(FOLDER / "scripts" / f"{name}.py")
    since = time.perf_counter()
    with log.open("wb") as errors:
        try:
            ran = subprocess.run(
                [*command, script], stdout=subprocess.PIPE, stderr=errors, check=False, cwd=ROOT, env=environment,
                timeout=longest,
            )  # fmt: skip
            code, printed = ran.returncode, ran.stdout
        except subprocess.TimeoutExpired:
            code, printed = -1, b""
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {"error": "no figures"}
    found |= {"exit_code": code, "wall": round(time.perf_counter() - since, 1)}
    if side == "emulated" and printed.startswith(b"{"):
        (card,) = json.loads(printed)["cards"]
        found["said"] = {
            key: card[key]
            for key in ("verdict", "exit_code", "allocated", "reserved", "process", "bounded", "reads", "unmodelled")
        }
    else:
        out.with_suffix(".out").write_bytes(printed)
        found["printed"] = printed.decode(errors="replace")[-MOST_PRINTED:]
    print(f"{side:9} {name:17} {found['wall']:6.1f} s  {found['error'] or ''}"[:160], file=sys.stderr, flush=True)
    return found


def row_of(name: str, real: dict[str, Any], emulated: dict[str, Any], out: Path) -> dict[str, Any]:
    """Both sides of a script, each counter as [real, emulated, difference]."""
    row: dict[str, Any] = {"script": name, "equal": False}
    if "end" in real and "end" in emulated:
        row["peaks"] = {key: _pair(real["end"], emulated["end"], key) for key in COUNTERS}
        pairs = zip(real["steps"], emulated["steps"], strict=False)
        row["steps"] = [{key: _pair(*pair, key) for key in COUNTERS} for pair in pairs]
        row["beside_reserved"] = [side["in_use"] - side["end"]["reserved"] for side in (real, emulated)]
        row["total"] = [real["total"], emulated["total"]]
        row["number_of_steps"] = [len(real["steps"]), len(emulated["steps"])]
        figures = [pair for step in [row["peaks"], *row["steps"]] for pair in step.values()]
        row["equal"] = len(set(row["number_of_steps"])) == 1 and not any(pair[2] for pair in figures)
        row["first_difference"] = _first_difference(out, name)
    sides = {"real": real, "emulated": emulated}
    for key in ("error", "exit_code", "seconds", "retries", "ooms", "device", "torch"):
        row[key] = {side: found.get(key) for side, found in sides.items()}
    row["said"] = emulated.get("said")
    row["printed"] = real.get("printed")
    return row


def _pair(real: dict[str, int], emulated: dict[str, int], key: str) -> tuple[int, int, int]:
    return real[key], emulated[key], emulated[key] - real[key]


def _first_difference(out: Path, name: str) -> dict[str, Any] | None:
    """The first request that is not the other side's, with the five before it; None where all are alike or gone."""
    rows: list[list[Any]] = []
    if not all((out / f"{name}.{side}.requests.gz").exists() for side in ("real", "emulated")):
        return None
    for side in ("real", "emulated"):
        with gzip.open(out / f"{name}.{side}.requests.gz", "rt", encoding="utf-8") as file:
            rows.append(json.load(file))
    real, emulated = rows
    at = next(
        (index for index, (a, b) in enumerate(zip(real, emulated, strict=False)) if a[:2] != b[:2]),
        min(len(real), len(emulated)),
    )
    if at == len(real) == len(emulated):
        return None
    before = max(0, at - 5)
    return {
        "at": at,
        "of": [len(real), len(emulated)],
        "real": real[before : at + 5],
        "emulated": emulated[before : at + 5],
    }


def main() -> None:
    """Run what is asked for and print it."""
    asked = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    asked.add_argument("names", nargs="*", default=SCRIPTS)
    asked.add_argument("--card", default="H100")
    asked.add_argument("--out", type=Path, required=True)
    asked.add_argument("--python", default=sys.executable)
    asked.add_argument("--through", default="")
    asked.add_argument("--real", type=Path, help="what a card answered once, in place of a GPU")
    asked.add_argument("--beside", type=int, default=4, help="emulated runs at a time")
    asked.add_argument("--longest", type=float, default=150, help="seconds a script may take")
    asked.add_argument("--limit", type=float, default=440, help="seconds after which no script begins")
    options = asked.parse_args()
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + options.limit

    def in_time(run: Any, name: str) -> dict[str, Any]:
        return run(name, options) if time.monotonic() < ends else {"error": "no time was left"}

    with ThreadPoolExecutor(1) as gpu, ThreadPoolExecutor(options.beside) as beside:
        real = {name: gpu.submit(in_time, run_real, name) for name in options.names}
        emulated = {name: beside.submit(in_time, run_emulated, name) for name in options.names}
        rows = [row_of(name, real[name].result(), emulated[name].result(), options.out) for name in options.names]
    document = {"card": options.card, "equal": sum(row["equal"] for row in rows), "of": len(rows), "scripts": rows}
    text = json.dumps(document, indent=1)
    (options.out / "card.json").write_text(text + "\n", encoding="utf-8")
    print(text)
    sys.exit(0 if document["equal"] == len(rows) else 2 if any("peaks" not in row for row in rows) else 1)


if __name__ == "__main__":
    main()
