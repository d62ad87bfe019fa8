"""The buffers that llama.cpp reports on an emulated H100: `python -m benchmarks.llama_cpp_buffers FOLDER [--record]`.

FOLDER holds `llama-cli` and `llama-server` of a CUDA build (`cmake -DGGML_CUDA=ON`; the kernels' code does not matter).
Each row of `tests/golden/serving/llama_cpp.json` is a model's shapes and flags. A GGUF file is written with those
tensors, whose bytes are a hole, and loaded by `vramtui dry-run --gpu H100`; the sizes of its weights, cache and compute
buffer that llama.cpp prints are held against the row, and kept in it with `--record`. Exit code 1 where one differs.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.recorded.gguf_files import GOLDEN, write_gguf

SIZE = re.compile(r"CUDA0 +(model|KV|compute) buffer size = +([\d.]+) MiB")


def reported(folder: Path, path: Path, program: str, flags: str) -> dict[str, Any]:
    """The sizes in MiB that a program prints once it has loaded the file; the caches one by one."""
    run = [sys.executable, "-m", "vramtui", "dry-run", "--gpu", "H100", "--show-output", "--keep-files"]
    job = [str(folder / program), "-m", str(path), "-v", *flags.split()]
    if program == "llama-cli":
        job += ["-n", "1", "-p", "hello", "--single-turn"]
    else:
        run += ["--timeout", "4"]
    ran = subprocess.run([*run, *job], capture_output=True, text=True, errors="replace", check=False, timeout=300)
    sizes = [(kind, float(size)) for kind, size in SIZE.findall(ran.stdout + ran.stderr)]
    weights, compute = ([size for kind, size in sizes if kind == asked] for asked in ("model", "compute"))
    if not compute:
        raise SystemExit(f"{program} {flags}: {ran.stderr[-1000:]}")
    # It says the same of a rehearsal first, in which caches take nothing.
    kv = [size for kind, size in sizes if kind == "KV" and size]
    return {"model": weights[-1] if weights else 0.0, "kv": kv, "compute": compute[-1]}


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("folder", type=Path)
    asked.add_argument("--record", action="store_true")
    options = asked.parse_args()
    kept = json.loads(GOLDEN.read_text(encoding="utf-8"))
    differ = 0
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "model.gguf"
        for model in kept["models"]:
            write_gguf(path, model["shapes"])
            for row in model["rows"]:
                found = reported(options.folder, path, row["program"], row["flags"])
                same = found == {key: row.get(key) for key in found}
                differ += not same
                print(f"{model['name']:18} {row['flags']:44} {found}{'' if same else ' differs'}", flush=True)
                row.update(found)
    if options.record:
        GOLDEN.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    return int(differ > 0)


if __name__ == "__main__":
    raise SystemExit(main())
