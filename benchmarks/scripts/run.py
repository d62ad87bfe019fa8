"""Trace the public scripts of corpus.toml as they are: `python benchmarks/scripts/run.py CHECKOUTS [--only TEXT]`.

CHECKOUTS is a folder that holds, or gets, a clone of each repository at its commit. `--judge COMMAND` runs each script
a second time under something that prints one JSON object with the true peaks: `allocated` and `reserved` in bytes, and
`why` it ended ("3 steps" where all is well). `--table FILE` writes what is known so far as Markdown.
"""

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import tomli

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.scripts.data import MAKERS

HERE = Path(__file__).resolve().parent
TIME_OUT = 240
TORCHRUN = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "8", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
GOOD = {"3 steps", "the script ended"}


def checkout(script: dict[str, Any], checkouts: Path) -> Path:
    """The folder of the script's repository, cloned and at its commit where it is not there yet."""
    folder: Path = checkouts / script["repository"].replace("/", "+")
    if not folder.is_dir():
        git = shutil.which("git") or "git"
        subprocess.run([git, "clone", "-q", f"https://github.com/{script['repository']}", folder], check=True)
        subprocess.run([git, "-C", folder, "checkout", "-q", script["commit"]], check=True)
    return folder


def run(command: list[str], folder: Path, extra: dict[str, str]) -> tuple[float, str, str]:
    """Seconds, standard output and the last line of standard error."""
    start = time.monotonic()
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **extra},
            capture_output=True,
            text=True,
            timeout=TIME_OUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return time.monotonic() - start, "", f"no answer in {TIME_OUT} s"
    said = [line for line in done.stderr.splitlines() if line.strip()]
    return time.monotonic() - start, done.stdout, said[-1] if said else ""


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


def measured(script: dict[str, Any], checkouts: Path, judge: list[str]) -> dict[str, Any]:
    """One row of the table."""
    root = checkout(script, checkouts)
    folder = root / script.get("folder", ".")
    MAKERS[script.get("data", "")](root)
    extra = TORCHRUN if script.get("torchrun") else {}
    if "path" in script:
        extra = extra | {"PYTHONPATH": os.pathsep.join([str(root / script["path"]), os.environ.get("PYTHONPATH", "")])}
    file, arguments = str(root / script["file"]), script.get("arguments", [])
    trace = [sys.executable, "-m", "vramtui", "trace", "--json", *script.get("flags", []), file, "--", *arguments]
    seconds, out, said = run(trace, folder, extra)
    answer = last_json(out.replace("\n", "")) if out else {}
    row = {"name": script["name"], "repository": script["repository"], "commit": script["commit"],
           "arguments": " ".join(script.get("flags", []) + arguments), "seconds": round(seconds, 1)}  # fmt: skip
    if answer:
        row |= {"allocated": answer["peak_allocated"], "reserved": answer["peak_reserved"]}
        row |= {
            "bounded": answer["bounded"],
            "notes": [note.replace(str(root) + os.sep, "") for note in answer["warnings"]],
        }
    else:
        row["refusal"] = said.removeprefix("vramtui: ").replace(str(root) + os.sep, "")
    if judge:
        _, out, said = run([*judge, file, *script.get("judge_arguments", arguments)], folder, extra)
        truth = last_json(out)
        row["judge"] = truth.get("why", said)[:100]
        if row["judge"] in GOOD:
            row |= {"true_allocated": truth["allocated"], "true_reserved": truth["reserved"]}
    return row


def table(rows: list[dict[str, Any]]) -> str:
    """What is known, as Markdown; peaks in MiB, errors as (trace - truth) / truth."""
    lines = [
        "| script | arguments | seconds | allocated MiB | error | reserved MiB | error | |",
        "|---|---|---:|---:|---:|---:|---:|---|",
    ]
    for row in rows:
        cells = [
            f"[{row['name']}](https://github.com/{row['repository']}/tree/{row['commit']})",
            f"`{row['arguments']}`",
        ]
        cells.append(f"{row['seconds']:.0f}")
        for figure in ("allocated", "reserved"):
            size, truth = row.get(figure), row.get(f"true_{figure}")
            cells.append("" if size is None else f"{size / 2**20:,.1f}")
            cells.append("" if size is None or truth is None else f"{100 * (size - truth) / truth:+.2f} %")
        cells.append(row.get("refusal") or ("bounded" if row.get("bounded") else ""))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Run what is asked for, add it to results.json in CHECKOUTS, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("--only", default="", help="scripts whose name has this in it")
    parser.add_argument("--judge", default="", help="a command that takes the script and its arguments")
    parser.add_argument("--table", type=Path, help="write the table of all results so far to this file")
    options = parser.parse_args()
    checkouts = options.checkouts.resolve()
    scripts = tomli.loads((HERE / "corpus.toml").read_text(encoding="utf-8"))["script"]
    store = checkouts / "results.json"
    rows = {row["name"]: row for row in (json.loads(store.read_text()) if store.exists() else [])}
    for script in scripts:
        if options.only in script["name"]:
            rows[script["name"]] = row = measured(script, checkouts, shlex.split(options.judge))
            print(json.dumps(row), flush=True)
            store.write_text(json.dumps(list(rows.values()), indent=1), encoding="utf-8")
    ordered = [rows[script["name"]] for script in scripts if script["name"] in rows]
    if options.table:
        options.table.write_text(f"{table(ordered)}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
