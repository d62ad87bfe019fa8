"""Run `vramtui dry-run` on public training scripts: `python -m benchmarks.scripts CHECKOUTS`, or `make corpus`.

CHECKOUTS has a clone of each repository of corpus.toml at its commit. The scripts run as they are, with made-up data
and random weights. Peaks within 0.5 % of allocated and 3 % of reserved of `truth` in corpus.toml are right.
Exit code 1 if less than 92 % of the scripts at hand are answered, less than 95 % of those with a truth are right, or a
wrong one is not marked as bounded.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from vramtui.core.base import toml
from vramtui.estimators.torch_facts.convolutions import WITHOUT_DEVICE

HERE = Path(__file__).resolve().parent
MIB = 2**20
WITHIN = (0.005, 0.03)  # of the true peak of allocated and of reserved memory
ANSWERED, RIGHT = 0.92, 0.95
GRACE = 60.0  # seconds for the command to end by itself after its own --timeout
# The script could not start on this machine: a package or a file of its repository is missing.
NOT_AT_HAND = ("ModuleNotFoundError", "not installed here", "No module named")

Script = dict[str, Any]


def checkout(script: Script, checkouts: Path) -> Path:
    """Return the folder of the script's repository, cloned at its commit if it is missing."""
    folder: Path = checkouts / script["repository"].replace("/", "+")
    if not folder.is_dir():
        git = shutil.which("git") or "git"
        subprocess.run([git, "clone", "-q", f"https://github.com/{script['repository']}", folder], check=True)
        subprocess.run([git, "-C", folder, "checkout", "-q", script["commit"]], check=True)
    return folder


def make_data(script: Script, root: Path, python: str) -> None:
    """Make up what the script reads, once, with the script's own Python because it has the packages for it."""
    marker = root / ".git" / f"made-{script.get('data', '')}"
    if "data" in script and not marker.exists():
        maker = "import sys; from pathlib import Path; from benchmarks.scripts.data import MAKERS; "
        maker += "MAKERS[sys.argv[1]](Path(sys.argv[2]))"
        subprocess.run([python, "-c", maker, script["data"], str(root)], check=True, cwd=HERE.parents[1])
        marker.touch()


def dry_run(script: Script, root: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Run one script.

    Returns:
        Seconds of CPU time, and either the peaks in bytes with `bounded` and `why`, or `refusal`, why there is none.
    """
    ranks = script.get("torchrun", 1)
    own = [sys.executable, "-m", "vramtui", "dry-run", "--json", "--steps", "3", "--timeout", f"{options.timeout:g}"]
    own += [
        "--gpu",
        f"{ranks}xH200" if ranks > 1 else "H200",
        *(["--engine", options.engine] if options.engine else []),
    ]
    launcher = [options.python, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    job = [*(launcher if "torchrun" in script else [options.python]), str(root / script["file"])]
    arguments: list[str] = script.get("arguments", [])
    if not options.as_written:
        arguments = script.get("truth_arguments", arguments)
    paths = [str(root / one) for one in script.get("path", "").split(os.pathsep) if one]
    if script.get("numpy"):
        paths.insert(0, str(options.numpy1))
    extra = {"PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")])} if paths else {}
    extra |= script.get("env", {})
    if "truth" in script and not options.on_card:  # which was taken without a device
        extra[WITHOUT_DEVICE] = "1"
    if "TORCH_HOME" in extra:
        extra["TORCH_HOME"] = str(root / extra["TORCH_HOME"])
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        done = subprocess.run(
            own + job + arguments,
            cwd=root / script.get("folder", "."),
            env={**os.environ, **extra},
            capture_output=True,
            text=True,
            input=script.get("keyboard", "") + "\n",
            timeout=options.timeout + GRACE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"seconds": options.timeout + GRACE, "refusal": f"no answer in {options.timeout + GRACE:g} s"}
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    try:
        document = json.loads(done.stdout[done.stdout.index("{") :])
    except ValueError:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return {"seconds": seconds, "refusal": said[-1].replace(str(root) + os.sep, "")}
    return {"seconds": seconds} | answer_of(document)


def answer_of(document: dict[str, Any]) -> dict[str, Any]:
    """Return the peaks that the JSON document of `dry-run` states for its GPU, or its reason for none."""
    if "error" in document:
        return {"refusal": document["error"]}
    (gpu,) = document["gpus"]
    result = gpu["result"]
    if result is None or not result["peak_allocated"]:
        return {"refusal": gpu["error"] or (result or {}).get("unknown") or "no peak"}
    return {
        "allocated": result["peak_allocated"],
        "reserved": result["peak_reserved"],
        "bounded": bool(result["bounded"]),
        "why": [note for note in result["warnings"] if note.startswith("bounded")],
    }


def errors_of(script: Script, row: dict[str, Any]) -> tuple[float, float] | None:
    """Return the errors of allocated and reserved against the truth, or None if one of the two is unknown."""
    if "truth" not in script or "allocated" not in row:
        return None
    allocated, reserved = script["truth"]
    return row["allocated"] / MIB / allocated - 1, row["reserved"] / MIB / reserved - 1


def is_right(errors: tuple[float, float], truth: list[float]) -> bool:
    """Return whether both errors are within their limits; the truth is rounded to a tenth of a MiB."""
    return all(abs(error) <= most + 0.05 / peak for error, most, peak in zip(errors, WITHIN, truth, strict=True))


def main() -> int:
    """Run the scripts that are at hand, print a row each and the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("--only", action="append", help="only scripts with this in their name; repeatable")
    parser.add_argument("--engine", choices=("cuda", "fake"), help="default: the one that dry-run chooses")
    parser.add_argument("--python", default=sys.executable, help="the Python with the scripts' packages")
    parser.add_argument("--numpy1", type=Path, help="a folder with the older NumPy that some scripts need")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for a script")
    parser.add_argument(
        "--as-written", action="store_true", help="the README's arguments, even if the truth has others"
    )
    parser.add_argument(
        "--on-card", action="store_true", help="workspaces of convolutions as an H100 takes them, which truths have not"
    )
    parser.add_argument("--clone", action="store_true", help="clone repositories that are missing")
    parser.add_argument(
        "--results", type=Path, help="write the rows to this file as JSON; rows in it are not run again"
    )
    options = parser.parse_args()
    known = json.loads(options.results.read_text()) if options.results and options.results.exists() else {}
    tried = answered = bounded = held = right = silent = 0
    for script in toml.loads((HERE / "corpus.toml").read_text(encoding="utf-8"))["script"]:
        name, root = script["name"], options.checkouts.resolve() / script["repository"].replace("/", "+")
        if not any(part in name for part in options.only or [""]):
            continue
        if options.clone:
            checkout(script, options.checkouts.resolve())
        if not (root / script["file"]).is_file() or (script.get("numpy") and not options.numpy1):
            print(f"{name:48} not at hand: no clone, or it needs --numpy1", flush=True)
            continue
        if name not in known:
            make_data(script, root, options.python)
            known[name] = dry_run(script, root, options)
        row = known[name]
        if options.results:
            options.results.write_text(json.dumps(known, indent=1), encoding="utf-8")
        if any(reason in row.get("refusal", "") for reason in NOT_AT_HAND):
            print(f"{name:48} not at hand: {row['refusal'][:120]}", flush=True)
            continue
        tried += 1
        if "refusal" in row:
            print(f"{name:48} no answer ({row['seconds']:.0f} s): {row['refusal'][:200]}", flush=True)
            continue
        answered += 1
        bounded += row["bounded"]
        text = (
            f"{row['allocated'] / MIB:>10,.1f} {row['reserved'] / MIB:>9,.0f} MiB{' bounded' if row['bounded'] else ''}"
        )
        if errors := errors_of(script, row):
            held += 1
            good = is_right(errors, script["truth"])
            right += good
            silent += not good and not row["bounded"]
            text += f"  {errors[0]:+.2%} {errors[1]:+.2%}{'' if good else '  WRONG'}"
        print(f"{name:48}{text}  ({row['seconds']:.0f} s)", flush=True)
    print(
        f"{answered} of {tried} answered, {bounded} of them bounded; {right} of {held} with a truth are right, "
        f"{silent} wrong without a note"
    )
    return int(answered < ANSWERED * tried or right < RIGHT * held or silent > 0)


if __name__ == "__main__":
    raise SystemExit(main())
