"""How far estimates are off by kind of job, on public models that nobody fitted them to, and the ranges that follow.

    python benchmarks/stated_errors.py            # for each kind: runs, families, and how many lie inside
    python benchmarks/stated_errors.py --runs     # every run
    python benchmarks/stated_errors.py --table    # the ranges, as the estimators state them
    python benchmarks/stated_errors.py --markdown # docs/errors.md
    python benchmarks/stated_errors.py --jobs JOBS.json    # what stated_run.py runs under a CUDA build
    python benchmarks/stated_errors.py --keep ANSWERS.json # its answers into tests/golden/stated.json

A range reaches from the least to the most of the errors of a kind, widened by a quarter of that on each side and
rounded up to whole percents; with fewer than eight families by half of it, and to 5 % at least. A run is held against
the range that the other families of its kind alone would give.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.recorded.stated_errors import GOLDEN, HEAD, markdown, measured, summary, table


def keep(answers: Path) -> int:
    """Write the jobs with an answer, and those that had one before, into the golden file; how many there are."""
    from benchmarks.stated_matrix import jobs  # noqa: PLC0415 - only to make the file

    found = json.loads(answers.read_text(encoding="utf-8"))
    before = {row["name"]: row for row in json.loads(GOLDEN.read_text(encoding="utf-8"))}
    rows = []
    for job in jobs():
        answer = found.get(job["name"])
        if isinstance(answer, list):
            rows.append(job | {"allocated": answer[0], "reserved": answer[1]})
        elif job["name"] in before:
            rows.append(before[job["name"]])
    GOLDEN.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n", encoding="utf-8")
    return len(rows)


def main(arguments: list[str]) -> None:
    """Print what is asked for."""
    what, *rest = arguments or ["--summary"]
    if what == "--jobs":
        from benchmarks.stated_matrix import jobs  # noqa: PLC0415 - as above

        Path(rest[0]).write_text(json.dumps(jobs()), encoding="utf-8")
    elif what == "--keep":
        print(f"{keep(Path(rest[0]))} jobs in {GOLDEN.name}")
    elif what == "--runs":
        for run in measured()[0]:
            off = ", ".join(f"{name} {error:+.2%}" for name, error in run.reserved.items())
            print(f"{run.name:<44}{run.kind:<24}allocated {run.allocated:+.2%}, reserved: {off}")
    elif what == "--table":
        print(table())
    elif what == "--markdown":
        print(markdown(), end="")
    else:
        for row in (HEAD, *summary()):
            print("".join(f"{cell:<26}" for cell in row).rstrip())


if __name__ == "__main__":
    main(sys.argv[1:])
