"""The Python programs nearby that have torch: the jobs to be watched, and what `trace` needs."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec

from vramtui.cli.doctor.check import Check, Finding
from vramtui.core.base.text import printable

LIMIT = 4.0
# Finds torch's version and CUDA release without importing it, which would take seconds and much memory. Python puts the
# current folder first for `-c`, and anything may stand there under the name of a module.
PROGRAM = """
import sys
sys.path[:] = [path for path in sys.path if path]
import importlib.util, json, pathlib, re
spec = importlib.util.find_spec("torch")
found = {}
if spec is not None and spec.origin:
    text = (pathlib.Path(spec.origin).parent / "version.py").read_text()
    for name in ("__version__", "cuda"):
        match = re.search(r"^" + name + r"\\b[^=]*=\\s*['\\"]([^'\\"]+)", text, re.MULTILINE)
        found[name] = match.group(1) if match else None
found["python"] = sys.version.split()[0]
print(json.dumps(found))
"""


def torch() -> Finding:
    """Every interpreter within reach, and the torch in it."""
    told = [text for path in interpreters() if (text := _torch_in(path))]
    if not told:
        return Finding(
            check="torch",
            verdict="warning",
            message="no Python here has torch; only `trace` needs it",
            hint="pip install 'vramtui[trace]'",
        )
    return Finding(check="torch", verdict="ok", message="; ".join(told))


def interpreters() -> list[Path]:
    """This Python, the active environments', and those on PATH; each once."""
    roots = (os.environ.get("VIRTUAL_ENV"), os.environ.get("CONDA_PREFIX"))
    candidates = [sys.executable, *(f"{root}/bin/python" for root in roots if root)]
    candidates += [found for name in ("python3", "python") if (found := shutil.which(name))]
    kept: dict[str, Path] = {}
    for path in map(Path, candidates):
        if path.exists():
            # An environment's python is a link to another one and yet has packages of its own.
            kept.setdefault(str(path.parent.resolve()), path)
    return list(kept.values())


def _torch_in(python: Path) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - an interpreter that this user's own PATH names
            [str(python), "-c", PROGRAM], capture_output=True, timeout=LIMIT, check=False, stdin=subprocess.DEVNULL
        )
        found = msgspec.json.decode(done.stdout, type=dict[str, str | None])
    except (OSError, subprocess.TimeoutExpired, msgspec.DecodeError):
        return ""
    version = found.get("__version__")
    if not version:
        return ""
    built = f"CUDA {found['cuda']}" if found.get("cuda") else "CPU build"
    return printable(f"torch {version} ({built}) in {python}, Python {found.get('python')}")


CHECKS = (Check("torch", torch),)
