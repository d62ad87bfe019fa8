"""Trace the public scripts of corpus.toml and rounds.toml as they are: `python benchmarks/scripts/run.py CHECKOUTS`.

CHECKOUTS is a folder that holds, or gets, a clone of each repository at its commit. `--truth COMMAND` runs each script
a second time under something that prints one JSON object with the true peaks: `allocated` and `reserved` in bytes, and
`why` it ended ("3 steps" where all is well). `--table FILE` writes what is known so far as Markdown.
`--check FILE` traces what is at hand (a clone in CHECKOUTS, its packages installed) and holds it to the tables in FILE:
exit code 1 where a row got worse. `make corpus` does that. `--python` names the Python that has the scripts' packages.
The truth is that of three steps with the batches that come first, and so is the trace: `--no-largest-batch`.
"""

import argparse
import json
import os
import resource
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.scripts.page import figures, got_worse, moved, with_rounds, with_table
from vramtui.core.base import toml
from vramtui.estimators.torch_facts.convolution_workspaces import WITHOUT_DEVICE

HERE = Path(__file__).resolve().parent
TIME_OUT = 560
TORCHRUN = {"RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
GOOD = {"3 steps", "the script ended"}
AS_THEY_COME = ("--no-largest-batch",)
LISTS = ("corpus.toml", "rounds.toml")
# A script whose packages are not installed.
_NO_PACKAGE = ("ModuleNotFoundError", "which is not installed here")


def checkout(script: dict[str, Any], checkouts: Path) -> Path:
    """The folder of the script's repository, cloned and at its commit where it is not there yet."""
    folder: Path = checkouts / script["repository"].replace("/", "+")
    if not folder.is_dir():
        git = shutil.which("git") or "git"
        subprocess.run([git, "clone", "-q", f"https://github.com/{script['repository']}", folder], check=True)
        subprocess.run([git, "-C", folder, "checkout", "-q", script["commit"]], check=True)
    return folder


GRACE = 60.0  # seconds in which a trace that ran out of its own time comes to its end


def _children() -> float:
    """What all ended children have taken, so that a loaded machine does not count."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(
    command: list[str], folder: Path, extra: dict[str, str], timeout: float, keyboard: str = ""
) -> tuple[float, str, str]:
    """Seconds of the processor, standard output and the last line of standard error.

    Args:
        command: what is run.
        folder: where.
        extra: variables beside those of this process.
        timeout: in seconds.
        keyboard: what a person types.
    """
    start = _children()
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **extra},
            capture_output=True,
            text=True,
            input=keyboard + "\n",
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return _children() - start, "", f"no answer in {timeout:g} s"
    said = [line for line in done.stderr.splitlines() if line.strip()]
    return _children() - start, done.stdout, said[-1] if said else ""


def last_json(text: str) -> dict[str, Any]:
    """The last JSON object among the lines of `text`; an empty one where there is none."""
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            try:
                found: dict[str, Any] = json.loads(line)
            except ValueError:
                continue
            return found
    return {}


def environment(script: dict[str, Any], root: Path) -> dict[str, str]:
    """What torchrun and a person at the command line would have set."""
    extra = TORCHRUN | {"WORLD_SIZE": str(script["torchrun"])} if "torchrun" in script else {}
    paths = [script.get("numpy_at"), *(str(root / one) for one in script.get("path", "").split(os.pathsep) if one)]
    if any(paths):
        extra |= {"PYTHONPATH": os.pathsep.join([*filter(None, paths), os.environ.get("PYTHONPATH", "")])}
    extra |= script.get("env", {}) | {WITHOUT_DEVICE: "1"}  # the truths' cuDNN had none
    if "TORCH_HOME" in extra:
        extra |= {"TORCH_HOME": str(root / extra["TORCH_HOME"])}
    return extra


def own_commit() -> str:
    """The commit of this project, with a + where the tree holds changes."""
    git = [shutil.which("git") or "git", "-C", str(HERE)]
    said = [
        subprocess.run([*git, *words], capture_output=True, text=True, check=False).stdout.strip()
        for words in (["rev-parse", "--short=8", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
    ]
    return said[0] + ("+" if said[1] else "")


def make_data(script: dict[str, Any], root: Path, python: str) -> None:
    """What the script reads, made up in its clone under its own Python, which has the packages for it."""
    marker = root / ".git" / f"made-{script.get('data', '')}"
    if "data" not in script or marker.exists():
        return
    listed = "rounds.toml" if "round" in script else "dry_runs.toml"
    command = [python, "-m", "benchmarks.scripts.make", listed, script["data"], str(root)]
    subprocess.run(command, check=True, cwd=HERE.parents[1])
    marker.touch()


def measured(script: dict[str, Any], checkouts: Path, timeout: float, python: str = "") -> dict[str, Any]:
    """What the trace says of a script: one row of the table, without the truth.

    Args:
        script: a row of a list.
        checkouts: where the clones are.
        timeout: in seconds.
        python: the scripts' own; "" for this one.
    """
    root = checkout(script, checkouts)
    folder = root / script.get("folder", ".")
    extra = environment(script, root)
    file, arguments = str(root / script["file"]), script.get("arguments", [])
    # A trace that ends itself waits for its own process, whose seconds of the processor count then.
    how = [*AS_THEY_COME, "--timeout", f"{timeout:g}", *(["--python", python] if python else [])]
    how += script.get("flags", [])
    trace = [sys.executable, "-m", "vramtui", "trace", "--json", *how, file, "--", *arguments]
    seconds, out, said = run(trace, folder, extra, timeout + GRACE, script.get("keyboard", ""))
    answer = last_json(out.replace("\n", "")) if out else {}
    row = {"name": script["name"], "repository": script["repository"], "commit": script["commit"],
           "arguments": " ".join(script.get("flags", []) + arguments), "seconds": round(seconds, 1),
           "run_at": own_commit()}  # fmt: skip
    if answer:
        row |= {"allocated": answer["peak_allocated"], "reserved": answer["peak_reserved"]}
        row |= {
            "bounded": answer["bounded"],
            "notes": [note.replace(str(root) + os.sep, "") for note in answer["warnings"]],
        }
    else:
        why: str = last_json(said).get("error", said)
        row["refusal"] = why.removeprefix("vramtui: ").replace(str(root) + os.sep, "")
    return row


def truth(script: dict[str, Any], checkouts: Path, command_of_truth: list[str], timeout: float) -> dict[str, Any]:
    """The true peaks of the script, or why there are none."""
    root = checkout(script, checkouts)
    command = [
        *command_of_truth,
        *([str(HERE / "one_rank.py")] if script.get("fake_ranks") else []),
        *([str(HERE / "causal_mask.py")] if script.get("causal_mask") else []),
        str(root / script["file"]),
        *script.get("truth_arguments", script.get("arguments", [])),
    ]
    extra = environment(script, root) | script.get("truth_env", {})
    _, out, said = run(command, root / script.get("folder", "."), extra, timeout, script.get("keyboard", ""))
    found = last_json(out)
    row = {"truth": found.get("why", said)[:200]}
    if row["truth"] in GOOD:
        row |= {"true_allocated": found["allocated"], "true_reserved": found["reserved"]}
    return row


def why_not_at_hand(row: dict[str, Any], root: Path) -> str:
    """Why a refusal is the machine's: a package is missing, or a file that a copy of the repository left out."""
    refusal = row.get("refusal", "")
    if any(one in refusal for one in _NO_PACKAGE):
        return str(refusal)
    git = shutil.which("git") or "git"
    listed = subprocess.run(
        [git, "-C", str(root), "ls-files", "--deleted"], capture_output=True, text=True, check=False
    )
    if "FileNotFoundError" in refusal and any(Path(one).name in refusal for one in listed.stdout.splitlines()):
        return str(refusal)
    return ""


def check(scripts: list[dict[str, Any]], options: argparse.Namespace) -> int:
    """Trace the scripts that are at hand; 1 where the row of one on the page `options.check` got worse."""
    known = figures(options.check.read_text(encoding="utf-8"))
    worse = held = 0
    for script in scripts:
        root = options.checkouts / script["repository"].replace("/", "+")
        if not (root / script["file"]).is_file():
            continue
        if script.get("numpy") and not options.numpy1:
            print(f"{script['name']}: not at hand: it needs NumPy {script['numpy']} (--numpy1)", flush=True)
            continue
        make_data(script, root, options.python or sys.executable)
        row = measured(with_numpy(script, options.numpy1), options.checkouts, options.timeout, options.python)
        if why := why_not_at_hand(row, root):
            print(f"{script['name']}: not at hand: {why}", flush=True)
            continue
        before = known.get(script["name"], {})
        said = got_worse(row, before)
        held += 1
        worse += bool(said)
        other = moved(row, before)
        fine = f"moved, not for the worse: {other}" if other else "as in the table" if before else "not in the table"
        print(f"{script['name']}: {said or fine}", flush=True)
    print(f"{held} of {len(scripts)} scripts are at hand, {worse} got worse")
    return int(worse > 0)


def with_numpy(script: dict[str, Any], folder: Path | None) -> dict[str, Any]:
    """The script with the older NumPy in `folder` before all else, where it asks for one."""
    return script | {"numpy_at": str(folder)} if script.get("numpy") and folder else script


def write_tables(file: Path, scripts: list[dict[str, Any]], rows: dict[str, dict[str, Any]]) -> None:
    """Put all rows into the tables of the page `file`."""
    rounds = [one for one in scripts if "round" in one]
    notes = {one["name"]: {"note": one.get("note", "")} for one in scripts if "round" not in one}
    found = {name: row | notes[name] for name, row in rows.items() if name in notes and "seconds" in row}
    page = with_table(file.read_text(encoding="utf-8"), list(notes), found)
    file.write_text(with_rounds(page, rounds, rows), encoding="utf-8")


def main() -> int:
    """Run what is asked for, add it to results.json in CHECKOUTS, write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("--only", action="append", help="scripts whose name has this in it; may be given again")
    parser.add_argument("--timeout", type=float, default=TIME_OUT, help="seconds that a script may take")
    parser.add_argument("--truth", default="", help="a command that takes the script and its arguments")
    parser.add_argument("--missing", action="store_true", help="leave out what results.json already has")
    parser.add_argument("--table", type=Path, help="put the table of all results so far into this page")
    parser.add_argument("--check", type=Path, help="trace what is at hand and hold it to the tables in this page")
    parser.add_argument("--python", default="", help="the Python with the scripts' packages; without it, this one")
    parser.add_argument("--numpy1", type=Path, help="a folder with the older NumPy that some scripts need")
    parser.add_argument("--list", choices=LISTS, help="one list alone")
    options = parser.parse_args()
    options.checkouts = checkouts = options.checkouts.resolve()
    lists = [options.list] if options.list else LISTS
    scripts = [one for name in lists for one in toml.loads((HERE / name).read_text(encoding="utf-8"))["script"]]
    if options.check:
        chosen = [one for one in scripts if any(part in one["name"] for part in options.only or [""])]
        return check(chosen, options)
    store = checkouts / "results.json"

    def known() -> dict[str, dict[str, Any]]:
        return {row["name"]: row for row in (json.loads(store.read_text()) if store.exists() else [])}

    for listed in () if options.table else scripts:
        script = with_numpy(listed, options.numpy1)
        name, wanted = script["name"], "truth" if options.truth else "seconds"
        if not any(part in name for part in options.only or [""]) or (
            options.missing and wanted in known().get(name, {})
        ):
            continue
        make_data(script, checkout(script, checkouts), options.python or sys.executable)
        found = (
            truth(script, checkouts, shlex.split(options.truth), options.timeout)
            if options.truth
            else measured(script, checkouts, options.timeout, options.python)
        )
        print(json.dumps({"name": name} | found), flush=True)
        rows = known()  # the other of the two may have written meanwhile
        kept = {
            key: at
            for key, at in rows.get(name, {}).items()
            if key.startswith(("truth", "true_")) != bool(options.truth)
        }
        rows[name] = kept | found | {"name": name}
        store.write_text(json.dumps(list(rows.values()), indent=1), encoding="utf-8")
    if options.table:
        write_tables(options.table, scripts, known())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
