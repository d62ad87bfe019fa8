"""A release of PyTorch beside its own truth: `python -m benchmarks.releases PYTHON`.

PYTHON is an interpreter with the CUDA build of that release. Its rules first: what `torch_facts` says is asked of the
release itself. Then the recorded training runs of tests/golden/training, and with `--scripts CHECKOUTS` public scripts
of corpus.toml: each is traced with PYTHON and runs on an emulated card (`vramtui run --on`), whose peaks are PyTorch's
own. What differs is printed with the first step that does, and with the rules that differ in that release.

`--truth COMMAND` is another source of the peaks, as of benchmarks/scripts/run.py; `--record FILE` keeps the answers and
the rows of this release as JSON, by which docs/scripts.md has its table; `--page` writes that table. `--kept` takes
answers and true peaks from tests/golden/releases.json where they were asked of this release by the same questions or
script: a truth does not hang on our rules, so that a rerun takes the traces alone, and PYTHON any build of the release.
1 where a rule differs, or fewer than 95 % are equal in allocated or within 2 % in reserved.
"""

import argparse
import hashlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.scripts import run as corpus
from benchmarks.scripts.data import MAKERS
from vramtui.core.base import toml
from vramtui.estimators.allocator.config import KEYS
from vramtui.estimators.torch_facts.allocator_sizes import LOWEST_FIRST_SINCE, rounded, segment_bytes
from vramtui.estimators.torch_facts.cublas import workspace_of
from vramtui.estimators.torch_facts.releases import release_of
from vramtui.estimators.torch_facts.sdpa_backend import AttentionCall, choose_backend

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden"
RECORDED = GOLDEN / "releases.json"
PAGE = ROOT / "docs" / "scripts.md"
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
# What of a script's row in corpus.toml does not move its true peaks.
NOT_ITS_OWN = {"name", "note", "flags"}
# Tensors of the base's size at the peak of backward, beside what a write into the base itself takes, where the view
# covers all of it: the gradient that `CopySlices` copies (torch/csrc/autograd/functions/tensor.cpp, PyTorch 2.13), and
# the zeros that `as_strided_backward` lays it into. A trace follows both operators.
WRITTEN_VIEW = 2
NEAR = 0.02
ENOUGH = 0.95


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
        ran = subprocess.run([*prefix, *job], capture_output=True, text=True, check=False, timeout=corpus.TIME_OUT)
        if not answers.exists():
            raise SystemExit(f"release_facts.py under {python}: {ran.stderr.strip()[-500:]}")
        found: dict[str, Any] = json.loads(answers.read_text(encoding="utf-8"))
        return found | {"asked": digest(script.read_text(encoding="utf-8") + questions())}


def digest(text: str) -> str:
    """Tells one text from another."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def identity(script: dict[str, Any]) -> str:
    """Tells one script, its commit, arguments and data from another; those of one identity have the same true peaks."""
    return digest(json.dumps({key: at for key, at in script.items() if key not in NOT_ITS_OWN}, sort_keys=True))


def recorded_of(version: str) -> dict[str, Any]:
    """What tests/golden/releases.json keeps of a release, whatever its build; empty where that is nothing."""
    known = json.loads(RECORDED.read_text(encoding="utf-8"))
    same = (found for name, found in known.items() if name.partition("+")[0] == version.partition("+")[0])
    return next(same, {})


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
        yield f"written view, {name}", "traced/dispatch/written_views.py", copies * views["base"], views[name]
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


def recorded_runs() -> list[dict[str, Any]]:
    """The recorded training runs of this card as scripts, in the form of corpus.toml."""
    return [
        {"name": path.stem, "file": "benchmarks/golden_training.py", "arguments": [path.stem]}
        for path in sorted((GOLDEN / "training" / CARD.lower()).glob("*.json"))
    ]


def traced(script: dict[str, Any], root: Path, python: str) -> dict[str, Any]:
    """The document of `trace --json`, or why there is none under `refusal`."""
    own = [
        sys.executable,
        "-m",
        "vramtui",
        "trace",
        "--json",
        "--device",
        CARD,
        "--python",
        python,
        *corpus.AS_THEY_COME,
    ]
    command = [*own, *script.get("flags", []), str(root / script["file"]), "--", *script.get("arguments", [])]
    extra = corpus.environment(script, root)
    _, out, said = corpus.run(command, root / script.get("folder", "."), extra, corpus.TIME_OUT)
    error = corpus.last_json(said).get("error", said)
    return corpus.last_json(out.replace("\n", "")) or {"refusal": error.removeprefix("vramtui: ")}


def emulated(script: dict[str, Any], root: Path, python: str) -> dict[str, Any]:
    """The peaks and phases of `vramtui run --on`, or why there are none under `why`."""
    ranks = script.get("torchrun", 1)
    devices = script.get("cards", ranks)
    card = CARD if devices == 1 else f"{devices}x{CARD}"
    own = [sys.executable, "-m", "vramtui", "run", "--on", card, "--steps", "3", "--json", "--"]
    launcher = [python] if ranks == 1 else [python, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    arguments = script.get("truth_arguments", script.get("arguments", []))
    extra = corpus.environment(script, root)
    program = ["-m", script["module"]] if "module" in script else [str(root / script["file"])]
    command = [*own, *launcher, *program, *arguments]
    _, out, said = corpus.run(command, root / script.get("folder", "."), extra, corpus.TIME_OUT)
    cards = corpus.last_json(out[out.find("{") :].replace("\n", "")).get("cards", [])
    return cards[0] if cards and cards[0]["allocated"] else {"why": said}


def first_difference(trace: dict[str, Any], truth: dict[str, Any]) -> str:
    """The first end of a pass or step at which the two differ; empty where no such row is known."""
    ours = {(row["phase"], row["step"]): row for row in trace["timeline"]}
    for row in truth.get("phases", []):
        mine = ours.get((row["phase"], row["step"]))
        if mine is None or row["phase"] != "step":  # only there both look at the same moment in every script
            continue
        for figure in ("allocated", "reserved"):
            if mine[figure] != row[figure]:
                return f"first at the end of step {row['step']}: {figure} {mine[figure]:,} for {row[figure]:,}"
    return ""


def explained(by: int, broken: dict[str, int]) -> str:
    """The rule whose difference, once or a few times, is that of a run; "no rule says it" where none is."""
    for name, bytes_ in broken.items():
        if bytes_ and by % bytes_ == 0 and 0 < by // bytes_ <= len(broken) + 3:
            return f"{by // bytes_} x {name}"
    return "no rule says it"


def held(script: dict[str, Any], root: Path, options: argparse.Namespace, broken: dict[str, int]) -> dict[str, Any]:
    """One row: a script traced and beside its truth."""
    trace = traced(script, root, options.python)
    row: dict[str, Any] = {"name": script["name"], "script": identity(script), "run_at": corpus.own_commit()}
    if "refusal" in trace:
        return row | {"refusal": trace["refusal"][:300]}
    row |= {"allocated": trace["peak_allocated"], "reserved": trace["peak_reserved"]}
    before = options.known.get(row["script"], {})
    if "no_truth" in before:
        return row | {"no_truth": before["no_truth"]}
    if "true_allocated" in before:
        truth, why = {"allocated": before["true_allocated"], "reserved": before["true_reserved"]}, ""
    elif options.truth and script["file"] != "benchmarks/golden_training.py":
        answer = corpus.truth(script, options.scripts.resolve(), shlex.split(options.truth), corpus.TIME_OUT)
        truth = {"allocated": answer.get("true_allocated"), "reserved": answer.get("true_reserved")}
        why = "" if truth["allocated"] else answer["truth"]
    else:
        truth = emulated(script, root, options.python)
        why = truth.get("why", "")
    if why or not truth["allocated"]:
        return row | {"no_truth": why[:200]}
    row |= {"true_allocated": truth["allocated"], "true_reserved": truth["reserved"]}
    by = row["allocated"] - row["true_allocated"]
    if by or row["reserved"] != row["true_reserved"]:
        said = [explained(by, broken) if by else "", first_difference(trace, truth), *trace["warnings"]]
        row["why"] = "; ".join(filter(None, said))[:400]
    return row


def line(row: dict[str, Any]) -> str:
    """A row for people."""
    if "true_allocated" not in row:
        return f"{row['name']:44} {row.get('refusal') or 'no truth: ' + row['no_truth']}"
    if "why" not in row:
        return f"{row['name']:44} equal to the byte"
    errors = (f"{name} {error(row, name):+.2%}" for name in ("allocated", "reserved"))
    return f"{row['name']:44} {', '.join(errors)}: {row['why']}"


def error(row: dict[str, Any], figure: str) -> float:
    """(trace - truth) / truth."""
    truth: int = row[f"true_{figure}"]
    return (row[figure] - truth) / truth if truth else 0.0


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How many traced, have a truth, are equal; and the largest error of allocated."""
    known = [row for row in rows if "true_allocated" in row]
    return {
        "tried": len(rows),
        "traced": sum("refusal" not in row for row in rows),
        "known": len(known),
        "allocated_equal": sum(row["allocated"] == row["true_allocated"] for row in known),
        "reserved_equal": sum(row["reserved"] == row["true_reserved"] for row in known),
        "reserved_near": sum(abs(error(row, "reserved")) <= NEAR for row in known),
        "worst": max((abs(error(row, "allocated")) for row in known), default=0.0),
    }


HEAD = (
    "| PyTorch | traced, of those tried | with a truth | allocated equal | reserved equal | in 2 % | worst | at |",
    "|---|---:|---:|---:|---:|---:|---:|---|",
)


def table(releases: dict[str, Any]) -> list[str]:
    """The table by release of docs/scripts.md."""
    lines = list(HEAD)
    for version, found in sorted(releases.items()):
        counts = summary(found["scripts"])
        cells = [f"{counts['traced']} of {counts['tried']}", counts["known"], counts["allocated_equal"]]
        cells += [counts["reserved_equal"], counts["reserved_near"], f"{counts['worst']:.2%}".replace("%", " %")]
        cells.append(", ".join(sorted({row.get("run_at", "before") for row in found["scripts"]})))
        lines.append(f"| {version.partition('+')[0]} | {' | '.join(map(str, cells))} |")
    return lines


def with_table(page: str, releases: dict[str, Any]) -> str:
    """`page` with that table made anew."""
    lines = page.splitlines()
    first = next(i for i, one in enumerate(lines) if one.startswith("| PyTorch |"))
    last = first
    while lines[last].startswith("|"):
        last += 1
    return "\n".join([*lines[:first], *table(releases), *lines[last:]]) + "\n"


def answers_of(options: argparse.Namespace) -> dict[str, Any]:
    """What the release answers, or with `--kept` did to the same questions."""
    if options.kept:
        script = (ROOT / "benchmarks" / "release_facts.py").read_text(encoding="utf-8")
        answers: dict[str, Any] = recorded_of(version_of(options.python)).get("answers", {})
        if answers.get("asked") == digest(script + questions()):
            return answers
    return ask_release(options.python, shlex.split(options.under)) | {"cudnn": not options.emulated}


def version_of(python: str) -> str:
    """Of the torch that this interpreter has."""
    said = "import torch; print(torch.__version__)"
    return subprocess.run([python, "-c", said], capture_output=True, text=True, check=True).stdout.strip()


def look_at_rules(found: dict[str, Any]) -> dict[str, int]:
    """Print what is not as `torch_facts` says; by how many bytes each rule is off."""
    stated = list(rules(found, cudnn=found["cudnn"]))
    broken = [one for one in stated if one[2] != one[3]]
    for name, file, said, does in broken:
        print(f"rule  {name}: {said} by {file}, {does} in {found['torch']}", flush=True)
    print(f"torch {found['torch']}: {len(stated) - len(broken)} of {len(stated)} rules hold", flush=True)
    return {name: said - does for name, _, said, does in broken if isinstance(does, int)}


def main() -> int:
    """Rules, recorded runs, public scripts; then what is kept of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python", nargs="?")
    parser.add_argument(
        "--only", action="append", help="runs and scripts whose name has this in it; may be given again"
    )
    parser.add_argument("--scripts", type=Path, help="the folder of the public scripts' clones")
    parser.add_argument("--truth", default="", help="a command that takes a public script and prints its true peaks")
    parser.add_argument("--under", default="", help="a command that gives what follows a card; else it is emulated")
    parser.add_argument("--record", type=Path, help="keep the rows of this release in this file")
    parser.add_argument("--kept", action="store_true", help="take answers and true peaks that are recorded")
    parser.add_argument(
        "--page", action="store_true", help=f"write the table into {PAGE.relative_to(ROOT)}; nothing runs"
    )
    options = parser.parse_args()
    if options.page:
        releases = json.loads(RECORDED.read_text(encoding="utf-8"))
        PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), releases), encoding="utf-8")
        return 0
    options.emulated = not options.under
    options.under = options.under or shlex.join(
        [sys.executable, "-m", "vramtui", "run", "--on", CARD, "--keep-files", "--"]
    )
    answers = answers_of(options)
    broken = look_at_rules(answers)
    rows = recorded_of(answers["torch"]).get("scripts", []) if options.kept else []
    options.known = {row["script"]: row for row in rows if "script" in row}
    wanted = options.only or [""]
    kept: dict[str, list[dict[str, Any]]] = {"runs": [], "scripts": []}
    if options.record:
        _record(options.record, answers, kept)
    for kind, script, root in _jobs(options):
        if any(part in script["name"] for part in wanted):
            kept[kind].append(held(script, root, options, broken))
            print(line(kept[kind][-1]), flush=True)
            if options.record:
                _record(options.record, answers, kept)
    return report(kept["runs"] + kept["scripts"], rules_hold=not broken)


def _jobs(options: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any], Path]]:
    yield from (("runs", script, ROOT) for script in recorded_runs())
    if options.scripts is None:
        return
    scripts = toml.loads((corpus.HERE / "corpus.toml").read_text(encoding="utf-8"))["script"]
    for script in scripts:
        root = options.scripts.resolve() / script["repository"].replace("/", "+")
        if root.is_dir() and any(part in script["name"] for part in options.only or [""]):
            MAKERS[script.get("data", "")](root)
            yield "scripts", script, root


def _record(file: Path, answers: dict[str, Any], kept: dict[str, list[dict[str, Any]]]) -> None:
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    version = answers["torch"]
    before = known.get(version, {"runs": [], "scripts": []})
    known[version] = {"answers": answers} | {
        kind: sorted({row["name"]: row for row in [*before.get(kind, []), *rows]}.values(), key=lambda row: row["name"])
        for kind, rows in kept.items()
    }
    file.write_text(json.dumps(known, indent=1) + os.linesep, encoding="utf-8")


def report(rows: list[dict[str, Any]], *, rules_hold: bool) -> int:
    """Print the counts; 1 where they are too low or a rule does not hold."""
    counts = summary(rows)
    print(
        f"{counts['traced']} of {counts['tried']} traced; beside a truth {counts['known']}: allocated equal in "
        f"{counts['allocated_equal']}, reserved equal in {counts['reserved_equal']} and within 2 % in "
        f"{counts['reserved_near']}; allocated at most {counts['worst']:.2%} off"
    )
    enough = ENOUGH * counts["known"]
    good = rules_hold and counts["traced"] == counts["tried"]
    return int(not (good and min(counts["allocated_equal"], counts["reserved_near"]) >= enough))


if __name__ == "__main__":
    raise SystemExit(main())
