"""Compare the rules of `torch_facts` with a release of PyTorch: `python -m benchmarks.releases PYTHON`.

PYTHON has the CUDA build of that release, which runs on a simulated GPU. Prints each rule that differs, with its file.
`python -m benchmarks.dry_run_goldens --engine cuda --python PYTHON` compares the recorded training runs.
"""

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vramtui.estimators.allocator.config import KEYS
from vramtui.estimators.torch_facts.allocator_sizes import LOWEST_FIRST_SINCE, rounded, segment_bytes
from vramtui.estimators.torch_facts.cublas import workspace_of
from vramtui.estimators.torch_facts.releases import release_of
from vramtui.estimators.torch_facts.sdpa_backend import AttentionCall, choose_backend

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden"
RECORDED = GOLDEN / "releases.json"
CARD, CAPABILITY = "H200", (9, 0)
# A value that each setting of the allocator may have.
VALUES = {
    "backend": "native",
    "expandable_segments": "False",
    "roundup_power2_divisions": "4",
    "garbage_collection_threshold": "0.8",
    "per_process_memory_fraction": "0.9",
    "max_split_size_mb": "64",
    "max_non_split_rounding_mb": "20",
    "large_segment_size_mb": "20",
    "pinned_num_register_threads": "2",
    "pinned_reserve_segment_size_mb": "20",
}
# Tensors of the base's size at the peak of backward, beside what a write into the base itself takes, where the view
# covers all of it: the gradient that `CopySlices` copies (torch/csrc/autograd/functions/tensor.cpp, PyTorch 2.13), and
# the zeros that `as_strided_backward` lays it into. A trace follows both operators.
WRITTEN_VIEW = 2
TIME_OUT = 560


def attention_calls() -> list[dict[str, Any]]:
    """The recorded calls of this card's capability."""
    known = json.loads((GOLDEN / "torch_facts.json").read_text(encoding="utf-8"))["sdpa"]
    rows = (dict(zip(known["columns"], row, strict=True)) for row in known["rows"])
    return [row for row in rows if row["capability"] == ".".join(map(str, CAPABILITY))]


def call_of(row: dict[str, Any], release: tuple[int, int]) -> AttentionCall:
    """A recorded call as the rule of that release takes it."""
    return AttentionCall(
        dtype=row["dtype"],
        query=tuple(row["query"]),
        key=tuple(row["key"]),
        value=tuple(row["value"]),
        masked=row["mask"] is not None,
        trained_mask=row["mask"] == "trained",
        dropout=float(row["dropout"]),
        causal=bool(row["causal"]),
        grouped=bool(row["grouped"]),
        training=bool(row["training"]),
        deterministic=bool(row["deterministic"]),
        release=release,
    )


def questions() -> str:
    """What release_facts.py is asked, as JSON."""
    values = {name: VALUES.get(name, "True") for name in KEYS}
    return json.dumps({"attention": attention_calls(), "settings": values})


def ask_release(python: str, prefix: list[str]) -> dict[str, Any]:
    """What the release itself answers to release_facts.py, behind a command that gives it a card."""
    script = ROOT / "benchmarks" / "release_facts.py"
    with tempfile.TemporaryDirectory() as folder:
        asked, answers = Path(folder) / "questions.json", Path(folder) / "answers.json"
        asked.write_text(questions(), encoding="utf-8")
        job = [python, str(script), str(asked), str(answers)]
        ran = subprocess.run([*prefix, *job], capture_output=True, text=True, check=False, timeout=TIME_OUT)
        if not answers.exists():
            raise SystemExit(f"release_facts.py under {python}: {ran.stderr.strip()[-500:]}")
        found: dict[str, Any] = json.loads(answers.read_text(encoding="utf-8"))
        return found


def rules(found: dict[str, Any], *, cudnn: bool) -> Iterator[tuple[str, str, Any, Any]]:
    """Each rule: its name, the file that states it, what it says of this release, and what the release does.

    Args:
        found: the answers of release_facts.py.
        cudnn: whether attention of cuDNN could run; the emulated card has none.
    """
    workspace = workspace_of(CAPABILITY, release_of(found["torch"]))
    theirs = found["workspaces"]
    for name, said in {
        "kept": workspace.persistent,
        "peak": workspace.bytes,
        "fused": workspace.fused,
        "thread": workspace.persistent,
        "stream": workspace.persistent,
    }.items():
        yield f"workspace, {name}", "torch_facts/cublas.py", said, theirs[name]
    sizes = {"one byte": rounded(1)}
    sizes |= {
        name: segment_bytes(size) for name, size in (("small", 1 << 20), ("middle", 1 << 21), ("large", 10 << 20))
    }
    for name, size in sizes.items():
        yield f"block, {name}", "torch_facts/allocator_sizes.py", size, found["blocks"][name]
    order = "lowest" if release_of(found["torch"]) >= LOWEST_FIRST_SINCE else "oldest"
    yield "free block of two of one size", "torch_facts/allocator_sizes.py", order, found["free block"]
    views = found["written views"]
    for name, copies in (("flattened", WRITTEN_VIEW), ("transposed", WRITTEN_VIEW), ("half", 0)):
        yield f"written view, {name}", "dryrun/fake/dispatch/autograd.py", copies * views["base"], views[name]
    for name, chosen in found["optimizers"].items():
        yield f"optimizer of {name}: fused, foreach", "core/schema/workload.py", [False, True], chosen
    for name in KEYS:
        yield (
            f"setting {name}",
            "estimators/allocator/config.py",
            "taken",
            ("unknown" if name in found["settings"] else "taken"),
        )
    for call, chosen in zip(attention_calls(), found["attention"], strict=True):
        if cudnn or call["backend"] != "cudnn":
            kernel = choose_backend(call_of(call, release_of(found["torch"])), CAPABILITY)
            yield f"attention {call['dtype']} {call['query']}", "torch_facts/sdpa_backend.py", kernel, chosen


def main() -> int:
    """Ask the release, print each rule that differs and the count; 1 if one differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python")
    parser.add_argument("--under", default="", help="a command that gives its job a real GPU; default: a simulated one")
    parser.add_argument("--record", action="store_true", help=f"keep the answers in {RECORDED.relative_to(ROOT)}")
    options = parser.parse_args()
    simulated = [sys.executable, "-m", "vramtui", "dry-run", "--gpu", CARD, "--engine", "cuda", "--keep-files"]
    found = ask_release(options.python, shlex.split(options.under) or simulated) | {"cudnn": bool(options.under)}
    stated = list(rules(found, cudnn=found["cudnn"]))
    broken = [one for one in stated if one[2] != one[3]]
    for name, file, said, does in broken:
        print(f"{name}: {said} by {file}, {does} in {found['torch']}")
    print(f"torch {found['torch']}: {len(stated) - len(broken)} of {len(stated)} rules hold")
    if options.record:
        known = json.loads(RECORDED.read_text(encoding="utf-8")) | {found["torch"]: found}
        RECORDED.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    return int(bool(broken))


if __name__ == "__main__":
    raise SystemExit(main())
