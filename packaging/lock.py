"""Name every wheel of the container by its hash: `python packaging/lock.py`, at a release and when constraints.txt
changes.

uv looks up what constraints.txt says in whichever index it is set up for; of that index nothing is written. locked.txt
is what the program needs, locked-build.txt what makes its wheel; `pip install --require-hashes` takes nothing else.
"""

import re
import subprocess
import sys
from pathlib import Path

import tomlkit

ROOT = Path(__file__).parent.parent
LOCKED, LOCKED_BUILD = ROOT / "packaging" / "locked.txt", ROOT / "packaging" / "locked-build.txt"
COMPILE = (
    "uv",
    "pip",
    "compile",
    "--quiet",
    "--universal",
    "--python-version",
    "3.11",
    "--constraints",
    "constraints.txt",
)
OPTIONS = (
    "--generate-hashes",
    "--no-header",
    "--no-annotate",
    "--upgrade",
)
PIN = re.compile(r"^([\w.-]+)==([\w.+!-]+)", re.MULTILINE)


def pins(text: str) -> dict[str, str]:
    """Each package of a file of pins, and its version."""
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in PIN.findall(text)}


def problem() -> str | None:
    """What is not locked as pyproject.toml and constraints.txt want it; None where all of it is."""
    project = tomlkit.parse((ROOT / "pyproject.toml").read_text())
    wanted = pins((ROOT / "constraints.txt").read_text())
    for path, needs in (
        (LOCKED, project["project"]["dependencies"]),
        (LOCKED_BUILD, project["build-system"]["requires"]),
    ):
        text = path.read_text()
        locked = pins(text)
        own = (str(one) for one in needs if "python_version <" not in str(one))  # the container's Python is newer
        missing = {re.split(r"[^\w.-]", one)[0].lower() for one in own} - locked.keys()
        other = {name for name in locked.keys() & wanted.keys() if locked[name] != wanted[name]}
        bare = [entry.split()[0] for entry in re.split(r"\n(?=\S)", text.strip()) if "--hash=sha256:" not in entry]
        if missing or other or bare:
            return (
                f"{path.name}: {', '.join(sorted({*missing, *other, *bare}))}; python packaging/lock.py makes it anew"
            )
    return None


def main() -> None:
    """Write both files."""
    for path, sources, given in ((LOCKED, "pyproject.toml", None), (LOCKED_BUILD, "-", "hatchling\n")):
        subprocess.run(
            (*COMPILE, *OPTIONS, "--output-file", str(path), sources), cwd=ROOT, check=True, input=given, text=True
        )
    sys.exit(problem())


if __name__ == "__main__":
    main()
