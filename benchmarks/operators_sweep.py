"""Everything that PyTorch lists of itself, under a trace: `python -m benchmarks.operators_sweep [DATABASE ...]`.

Each case runs on the CPU first, then within a trace on "cuda", all cases of a database in one process. It is answered
where its results have the same shapes, strides, dtypes and layouts and stand on the card; where the CPU refuses it, the
trace has to raise an error of the same type. An entry of a database is answered where all of its cases are. Needs
`pip install expecttest`. `--device-strides` leaves strides out, which CUDA's kernels may choose otherwise.
Exit code 1 where an entry is not answered.
"""

import argparse
import json
import os
import pickle
import shlex
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
SECONDS = 60  # for one case


def describe(value: Any, device: str) -> Any:
    """What is compared of a result: of numbers the type alone, as a trace has no values."""
    import torch  # noqa: PLC0415 - the parent needs none
    from torch.utils._pytree import tree_flatten  # noqa: PLC0415 - as above

    parts: list[Any] = []
    for one in tree_flatten(value)[0]:
        if isinstance(one, torch.Tensor):
            stride = one.stride() if one.layout is torch.strided else ()
            at_home = one.device.type if device == "cpu" else one.device.type.replace("cuda", "cpu")
            parts.append((tuple(one.shape), stride, str(one.dtype), at_home, str(one.layout), one.requires_grad))
        else:
            parts.append(str(one) if isinstance(one, (bool, str, type(None))) else type(one).__name__)
    return parts


def outcome(case: Any, device: str) -> tuple[str, Any, BaseException | None]:
    """Either "gave" and its description, or "raised", the error's type and the error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return "gave", describe(case.run(device), device), None
    except Exception as error:
        return "raised", type(error).__name__, error


def compare(plain: Any, traced: Any, session: Any) -> tuple[str, str]:
    """How an answer under a trace stands to that of the CPU, and in which words."""
    from vramtui.core.base.errors import BeyondTraceError  # noqa: PLC0415 - the parent needs none
    from vramtui.estimators.traced.process.failures import in_words  # noqa: PLC0415 - loads torch

    said, described, error = traced
    if plain[:2] == (said, described):
        return "answered", ""
    if said == "gave":
        if plain[0] == "raised":
            return "not refused", f"{plain[1]}: {str(plain[2]).splitlines()[:1]}"
        pairs = [(one, other) for one, other in zip(plain[1], described, strict=False) if one != other]
        return _difference(pairs, len(plain[1]) - len(described)), str(pairs[:2])
    words = in_words(error, session)
    if plain[0] == "raised":
        return "another error", f"{plain[1]} -> {described}: {words}"
    kind = "limit" if isinstance(words, BeyondTraceError) else "blamed"
    where = traceback.extract_tb(error.__traceback__)[-1]
    return kind, f"{words} [{described} in {Path(where.filename).name}:{where.lineno}]"


def _difference(pairs: list[Any], missing: int) -> str:
    if missing or any(isinstance(part, str) for pair in pairs for part in pair):
        return "another result"
    names = ("shape", "stride", "dtype", "device", "layout", "requires_grad")
    return "another " + next(name for i, name in enumerate(names) for one, other in pairs if one[i] != other[i])


def run_here(options: argparse.Namespace) -> None:
    """All cases of a database from the entry `--start` on; a line of JSON for each."""
    import torch  # noqa: PLC0415 - the parent needs none

    from benchmarks.operators_cases import DATABASES  # noqa: PLC0415 - loads torch
    from vramtui.core.estimate.devices import card  # noqa: PLC0415 - the parent needs none
    from vramtui.estimators.allocator.caching import CachingAllocator  # noqa: PLC0415 - as above
    from vramtui.estimators.traced.session import TraceSession  # noqa: PLC0415 - loads torch

    made = DATABASES[options.database](
        getattr(torch, options.dtype) if options.dtype else None, guessed=options.guessed
    )
    cases = [(i, case) for i, case in enumerate(made) if i >= options.start and options.only in case.name]
    plain = run_beside([case for _i, case in cases])
    device = card("H200")
    session = TraceSession(CachingAllocator(device.total_memory), device, steps=1 << 60)
    signal.signal(signal.SIGALRM, give_up)
    with session:
        for (i, case), before in zip(cases, plain, strict=True):
            say({"begun": i, "name": case.name})
            session.memory.guesses_read.clear()
            signal.alarm(SECONDS)
            kind, words = compare(before, outcome(case, "cuda"), session)
            signal.alarm(0)
            say({"case": i, "name": case.name, "kind": kind, "words": words})
    say({"over": True})


def run_beside(cases: list[Any]) -> list[Any]:
    """What each case comes to on the CPU, in a copy of this process: a trace begins before the first backward."""
    read, write = os.pipe()
    if not (child := os.fork()):
        with open(write, "wb") as told:  # noqa: PTH123 - a pipe
            for case in cases:
                kind, described, error = outcome(case, "cpu")
                pickle.dump((kind, described, str(error)), told)
        os._exit(0)
    os.close(write)
    with open(read, "rb") as told:  # noqa: PTH123 - a pipe
        said = [pickle.load(told) for _ in cases]  # noqa: S301 - our own copy wrote it
    os.waitpid(child, 0)
    return said


def give_up(*_signal: object) -> None:
    """A case has had its seconds."""
    raise TimeoutError(f"no answer in {SECONDS} s")


def say(line: dict[str, Any]) -> None:
    """To the parent."""
    print(json.dumps(line, default=str), flush=True)


def sweep(database: str, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A line for each case; a process that dies is told as a crash of its last one, and another goes on behind it."""
    words = [sys.executable, "-m", "benchmarks.operators_sweep", "--child", database, "--only", options.only]
    words += ["--dtype", options.dtype] * bool(options.dtype) + ["--guessed"] * options.guessed
    for line in lines_of_children(words, {**os.environ, "OMP_NUM_THREADS": "1"}):
        if "ended" in line:
            line |= {"case": line["begun"], "kind": "crash", "words": f"exit code {line['ended']}"}
        yield line


def lines_of_children(words: list[str], environment: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Each line of JSON with a `case` that a program prints; where one ends the process, another goes on behind it.

    The program takes `--start`, says `begun` before each case and `over` at its end. What it had begun when it ended
    comes as that line with the exit code, `ended`.

    Args:
        words: the program and its arguments.
        environment: its variables.
    """
    start = 0
    while True:
        command = [*words, "--start", str(start)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=HERE.parents[1], env=environment)
        begun: dict[str, Any] = {}
        over = False
        for line in child.stdout or ():
            try:
                said = json.loads(line)
            except ValueError:
                continue  # a library's own words
            if not isinstance(said, dict):
                continue
            over |= "over" in said
            if "begun" in said:
                begun = said
            elif "case" in said:
                yield said
        code = child.wait()
        if over:
            return
        if not begun or begun["begun"] < start:
            raise SystemExit(f"{shlex.join(words)}: the process ended with {code} before its first case")
        yield begun | {"ended": code}
        start = begun["begun"] + 1


def by_entry(lines: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The first case of each entry that is not answered, or its last one."""
    entries: dict[str, dict[str, Any]] = {}
    for line in lines:
        known = entries.setdefault(line["name"], line)
        if known["kind"] == "answered":
            entries[line["name"]] = line
    return entries


def main() -> int:
    """Print what is not answered, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("databases", nargs="*", default=["operators", "errors", "modules", "optimizers", "snippets"])
    parser.add_argument("--only", default="", help="entries whose name has this in it")
    parser.add_argument("--dtype", help="for all, as bfloat16; else the first that each takes, float32 before others")
    parser.add_argument("--guessed", action="store_true", help="fractions have no known values, as those of a layer")
    parser.add_argument("--json", type=Path, help="where every line goes")
    parser.add_argument("--child", dest="database", help=argparse.SUPPRESS)
    parser.add_argument("--start", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.database:
        run_here(options)
        return 0
    kept, missing = {}, 0
    for database in options.databases:
        began = time.monotonic()
        kept[database] = lines = list(sweep(database, options))
        entries = by_entry(lines)
        for name, line in entries.items():
            if line["kind"] != "answered":
                print(f"{database} {name}: {line['kind']}: {line['words'][:400]}")
        kinds = Counter(line["kind"] for line in entries.values())
        answered = kinds.pop("answered", 0)
        missing += len(entries) - answered
        good = sum(line["kind"] == "answered" for line in lines)
        print(f"{database}: {answered} of {len(entries)} entries, {good} of {len(lines)} cases, "
              f"{time.monotonic() - began:.0f} s; {dict(kinds)}", flush=True)  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps(kept, indent=1), encoding="utf-8")
    return int(missing > 0)


if __name__ == "__main__":
    raise SystemExit(main())
