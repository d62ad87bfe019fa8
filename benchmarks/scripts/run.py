"""Trace the public scripts of corpus.toml as they are: `python benchmarks/scripts/run.py CHECKOUTS [--only TEXT]`.

CHECKOUTS is a folder that holds, or gets, a clone of each repository at its commit. `--truth COMMAND` runs each script
a second time under something that prints one JSON object with the true peaks: `allocated` and `reserved` in bytes, and
`why` it ended ("3 steps" where all is well). `--table FILE` writes what is known so far as Markdown.
`--check FILE` traces what is at hand (a clone in CHECKOUTS, its packages installed) and holds it to the table in FILE:
exit code 1 where a row got worse. `make corpus` does that.
"""

import argparse
import json
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.scripts.data import MAKERS
from vramtui.core.base import toml

HERE = Path(__file__).resolve().parent
TIME_OUT = 560
TORCHRUN = {"RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
GOOD = {"3 steps", "the script ended"}
MOVED = 0.0005  # of a figure: the table's own are rounded to a tenth of a MiB
_ROW = re.compile(r"^\| \[(?P<name>[^]]+)\]")


def checkout(script: dict[str, Any], checkouts: Path) -> Path:
    """The folder of the script's repository, cloned and at its commit where it is not there yet."""
    folder: Path = checkouts / script["repository"].replace("/", "+")
    if not folder.is_dir():
        git = shutil.which("git") or "git"
        subprocess.run([git, "clone", "-q", f"https://github.com/{script['repository']}", folder], check=True)
        subprocess.run([git, "-C", folder, "checkout", "-q", script["commit"]], check=True)
    return folder


def _children() -> float:
    """What all ended children have taken, so that a loaded machine does not count."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(command: list[str], folder: Path, extra: dict[str, str], timeout: float) -> tuple[float, str, str]:
    """Seconds of the processor, standard output and the last line of standard error; `timeout` is in seconds."""
    start = _children()
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **extra},
            capture_output=True,
            text=True,
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
    if "path" in script:
        extra |= {"PYTHONPATH": os.pathsep.join([str(root / script["path"]), os.environ.get("PYTHONPATH", "")])}
    extra |= script.get("env", {})
    return extra


def own_commit() -> str:
    """The commit of this project, with a + where the tree holds changes."""
    git = [shutil.which("git") or "git", "-C", str(HERE)]
    said = [
        subprocess.run([*git, *words], capture_output=True, text=True, check=False).stdout.strip()
        for words in (["rev-parse", "--short=8", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
    ]
    return said[0] + ("+" if said[1] else "")


def measured(script: dict[str, Any], checkouts: Path, timeout: float) -> dict[str, Any]:
    """What the trace says of a script: one row of the table, without the truth."""
    root = checkout(script, checkouts)
    folder = root / script.get("folder", ".")
    extra = environment(script, root)
    file, arguments = str(root / script["file"]), script.get("arguments", [])
    trace = [sys.executable, "-m", "vramtui", "trace", "--json", *script.get("flags", []), file, "--", *arguments]
    seconds, out, said = run(trace, folder, extra, timeout)
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
        str(root / script["file"]),
        *script.get("truth_arguments", script.get("arguments", [])),
    ]
    extra = environment(script, root) | script.get("truth_env", {})
    _, out, said = run(command, root / script.get("folder", "."), extra, timeout)
    found = last_json(out)
    row = {"truth": found.get("why", said)[:200]}
    if row["truth"] in GOOD:
        row |= {"true_allocated": found["allocated"], "true_reserved": found["reserved"]}
    return row


HEAD = (
    "| script | arguments | CPU seconds | allocated MiB | error | reserved MiB | error | run at | |",
    "|---|---|---:|---:|---:|---:|---:|---|---|",
)


def line(row: dict[str, Any]) -> str:
    """What is known of a script, as a row of Markdown; peaks in MiB, errors as (trace - truth) / truth."""
    cells = [
        f"[{row['name']}](https://github.com/{row['repository']}/tree/{row['commit']})",
        f"`{row['arguments']}`",
    ]
    cells.append(f"{row['seconds']:.0f}")
    for figure in ("allocated", "reserved"):
        size, truth = row.get(figure), row.get(f"true_{figure}")
        cells.append("" if size is None else f"{size / 2**20:,.1f}")
        cells.append("" if size is None or not truth else f"{100 * (size - truth) / truth:+.2f} %")
    cells.append(row.get("run_at", ""))
    note = row.get("refusal") or ("bounded" if row.get("bounded") else "")
    cells.append("; ".join(filter(None, (note, row.get("note", "")))))
    return f"| {' | '.join(cells)} |"


def figures(page: str) -> dict[str, dict[str, float]]:
    """What the table in `page` says of each script: MiB, and its error against the truth where there is one."""
    columns = ("allocated", "allocated_error", "reserved", "reserved_error")
    known = {}
    for one in page.splitlines():
        row = _ROW.match(one)
        if row:
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", one)[4:8]]
            known[row["name"]] = {
                name: float(cell.removesuffix("%").replace(",", "")) / (100 if "%" in cell else 1)
                for name, cell in zip(columns, cells, strict=True)
                if cell
            }
    return known


def got_worse(row: dict[str, Any], before: dict[str, float]) -> str:
    """Why a script's new row is worse than the table's, in words; "" where it is not."""
    if "allocated" not in before:
        return ""
    if "refusal" in row:
        return f"no longer answered: {row['refusal']}"
    worse = []
    for name in ("allocated", "reserved"):
        error = before.get(f"{name}_error")
        if error is not None and before[name]:
            now = (1 + error) * row[name] / 2**20 / before[name] - 1
            if abs(now) > abs(error) + max(MOVED, 0.05 / before[name]):
                worse.append(f"{name} {100 * error:+.2f} % to {100 * now:+.2f} %")
    return ", ".join(worse)


def check(scripts: list[dict[str, Any]], checkouts: Path, page: str, timeout: float) -> int:
    """Trace the scripts that are at hand; 1 where the row of one in `page` got worse."""
    known, worse, held = figures(page), 0, 0
    for script in scripts:
        if not (checkouts / script["repository"].replace("/", "+")).is_dir():
            continue
        MAKERS[script.get("data", "")](checkout(script, checkouts))
        row = measured(script, checkouts, timeout)
        if "ModuleNotFoundError" in row.get("refusal", ""):
            print(f"{script['name']}: not at hand: {row['refusal']}", flush=True)
            continue
        said = got_worse(row, known.get(script["name"], {}))
        held += 1
        worse += bool(said)
        print(f"{script['name']}: {said or 'as in the table'}", flush=True)
    print(f"{held} of {len(scripts)} scripts are at hand, {worse} got worse")
    return int(worse > 0)


def with_table(page: str, names: list[str], rows: dict[str, dict[str, Any]]) -> str:
    """`page` with its table made anew: the scripts of `names` in their order, those without a row in `rows` as they
    stand on the page; what stands before and after the table stays.
    """
    lines = page.splitlines()
    first = next((i for i, one in enumerate(lines) if one.startswith("| script ")), len(lines))
    last = first
    while last < len(lines) and lines[last].startswith("|"):
        last += 1
    before = {one[3:].partition("]")[0]: one for one in lines[first:last] if one.startswith("| [")}
    table = [line(rows[name]) if name in rows else before.get(name, "") for name in names]
    return "\n".join([*lines[:first], *HEAD, *filter(None, table), *lines[last:]]) + "\n"


def main() -> int:
    """Run what is asked for, add it to results.json in CHECKOUTS, write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("--only", action="append", help="scripts whose name has this in it; may be given again")
    parser.add_argument("--timeout", type=float, default=TIME_OUT, help="seconds that a script may take")
    parser.add_argument("--truth", default="", help="a command that takes the script and its arguments")
    parser.add_argument("--missing", action="store_true", help="leave out what results.json already has")
    parser.add_argument("--table", type=Path, help="put the table of all results so far into this page")
    parser.add_argument("--check", type=Path, help="trace what is at hand and hold it to the table in this page")
    options = parser.parse_args()
    checkouts = options.checkouts.resolve()
    scripts = toml.loads((HERE / "corpus.toml").read_text(encoding="utf-8"))["script"]
    if options.check:
        chosen = [one for one in scripts if any(part in one["name"] for part in options.only or [""])]
        return check(chosen, checkouts, options.check.read_text(encoding="utf-8"), options.timeout)
    store = checkouts / "results.json"

    def known() -> dict[str, dict[str, Any]]:
        return {row["name"]: row for row in (json.loads(store.read_text()) if store.exists() else [])}

    for script in () if options.table else scripts:
        name, wanted = script["name"], "truth" if options.truth else "seconds"
        if not any(part in name for part in options.only or [""]) or (
            options.missing and wanted in known().get(name, {})
        ):
            continue
        MAKERS[script.get("data", "")](checkout(script, checkouts))
        found = (
            truth(script, checkouts, shlex.split(options.truth), options.timeout)
            if options.truth
            else measured(script, checkouts, options.timeout)
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
        notes = {script["name"]: {"note": script.get("note", "")} for script in scripts}
        found = {name: row | notes[name] for name, row in known().items() if name in notes and "seconds" in row}
        page = with_table(options.table.read_text(encoding="utf-8"), list(notes), found)
        options.table.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
