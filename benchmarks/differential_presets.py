"""The recorded random scripts as presets, where a list of layers can say them, estimated beside their true peaks.

    python benchmarks/differential_presets.py             # how many can be said, and how far off the estimates are
    python benchmarks/differential_presets.py --rows      # every case
    python benchmarks/differential_presets.py --unsaid    # what the others do that no preset says
    python benchmarks/differential_presets.py --keep "PYTHON"    # their true peaks, as PYTHON's CUDA build has them

The scripts are those of `differential_grammar.py`, in `tests/golden/differential.json`. A preset means a loop in which
the batch stays while it is worked on and the model's output is let go with the loss; the scripts do it the other way
round, so that each is run once more with that loop, and `job` holds those peaks.
"""

import json
import shlex
import sys
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.recorded.differential import GOLDEN, script_peaks
from tests.recorded.differential_presets import UnsaidError, job_script, measured, rows, spread


def keep(cuda: list[str]) -> int:
    """Run every case that a preset says under the CUDA build and write its peaks beside it; how many there are."""
    kept, said = rows(), []
    for row in kept:
        row.pop("job", None)
        with suppress(UnsaidError):
            said.append((row, (row["device"], job_script(row["script"]))))
    for (row, _), peaks in zip(said, script_peaks([job for _, job in said], cuda, "--cuda"), strict=True):
        if isinstance(peaks, list):
            row["job"] = peaks
        else:
            print(peaks, file=sys.stderr)
    GOLDEN.write_text("[\n" + ",\n".join(map(json.dumps, kept)) + "\n]\n", encoding="utf-8")
    return len(said)


def main(arguments: list[str]) -> None:
    """Print what is asked for."""
    if arguments[:1] == ["--keep"]:
        print(f"{keep(shlex.split(arguments[1]))} cases run")
        return
    found, unsaid = measured()
    if "--rows" in arguments:
        for row in sorted(found, key=lambda row: -abs(row.allocated)):
            run = row.workload.run
            print(f"{row.number:4} {row.device:10} allocated {row.allocated:+8.3%}, reserved {row.reserved:+8.2%}", run)
    if "--unsaid" in arguments:
        for line, count in unsaid.most_common():
            print(f"{count:4} {line}")
    print(f"{len(found)} of {len(found) + unsaid.total()} scripts are said by a preset")
    for title, errors in (
        ("analytic, allocated", [row.allocated for row in found]),
        ("simulated, reserved", [row.reserved for row in found]),
    ):
        median, most, worst = spread(errors)
        print(f"{title}: median {median:.2%}, 90th percentile {most:.2%}, worst {worst:.2%}")


if __name__ == "__main__":
    main(sys.argv[1:])
