"""The machine around the driver: containers, terminals, folders, and Pythons with torch."""

import os
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from vramtui.cli.doctor.check import Check, Finding
from vramtui.dryrun.job_command import Interpreter, import_problem, interpreters
from vramtui.estimators.torch_facts.releases import TAKES

NARROWEST, LOWEST = 80, 24


def namespaces() -> Finding:
    """Whether the driver's pids mean the same processes here."""
    from vramtui.sources.host.host import PidNamespace

    if not PidNamespace().private:
        return Finding(check="namespaces", verdict="ok", message="the host's process ids are visible")
    hint = "Start the container with --pid=host to see names, users and commands of all processes."
    message = "this is a separate pid namespace: processes outside it appear without a name"
    return Finding(check="namespaces", verdict="warning", message=message, hint=hint)


def terminal() -> Finding:
    if not sys.stdout.isatty():
        return Finding(check="terminal", verdict="unknown", message="the output is not a terminal")
    size = shutil.get_terminal_size()
    name = os.environ.get("TERM", "")
    if name in ("", "dumb", "unknown"):
        hint = "Set TERM, for instance to xterm-256color."
        return Finding(check="terminal", verdict="failed", message=f"TERM is {name or 'not set'!r}", hint=hint)
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    colours = _colours(name)
    summary = f"{name}, {size.columns}x{size.lines}, {colours}"
    if encoding != "utf8":
        hint = "Set LANG to a UTF-8 locale, for instance C.UTF-8; until then lines are drawn in ASCII."
        return Finding(check="terminal", verdict="warning", message=f"{summary}, encoding {encoding or '?'}", hint=hint)
    if size.columns < NARROWEST or size.lines < LOWEST:
        hint = f"The screen is made for {NARROWEST}x{LOWEST} and more."
        return Finding(check="terminal", verdict="warning", message=f"{summary}: it is small", hint=hint)
    return Finding(check="terminal", verdict="ok", message=summary)


def _colours(name: str) -> str:
    if "NO_COLOR" in os.environ:
        return "no colours (NO_COLOR)"
    if os.environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return "16 million colours"
    return "256 colours" if "256" in name else "16 colours"


def folders() -> Finding:
    """Whether presets, settings and records can be kept."""
    from vramtui.cli.common.paths import cache_dir, config_dir, data_dir, state_dir

    chosen = {"config": config_dir(), "data": data_dir()}
    if data_dir() != state_dir():
        chosen |= {"state": state_dir(), "cache": cache_dir()}
    locked = [f"{kind} folder {path}" for kind, path in chosen.items() if not _writable(path)]
    if locked:
        hint = "Let this user write there, or set VRAMTUI_CONFIG_DIR and VRAMTUI_DATA_DIR."
        message = f"cannot write to the {' and the '.join(locked)}"
        return Finding(check="folders", verdict="warning", message=message, hint=hint)
    places = ", ".join(f"{kind} in {path}" for kind, path in chosen.items())
    return Finding(check="folders", verdict="ok", message=places)


def _writable(path: Path) -> bool:
    """Whether files can be made in `path`, or in the folder that it would be made in."""
    try:
        while not path.exists() and path != path.parent:
            path = path.parent
        with tempfile.TemporaryFile(dir=path):
            return True
    except OSError:
        return False


def torch() -> Finding:
    """Every interpreter within reach, the torch in it, and whether that can be imported and traced."""
    with_torch = [one for one in interpreters() if one.torch is not None]
    if not with_torch:
        return Finding(
            check="torch",
            verdict="warning",
            message="no Python within reach has torch; only `dry-run` needs it",
            hint="Activate the job's environment, or name its Python: vramtui dry-run --python PATH SCRIPT",
        )
    traceable = [one for one in with_torch if not one.refusal]
    with ThreadPoolExecutor(len(with_torch)) as pool:
        problems = dict(zip(traceable, pool.map(import_problem, traceable), strict=True))
    broken = [one for one, problem in problems.items() if problem]
    hint = ""
    if broken:
        hint = f"`{broken[0].path} -c 'import torch'` tells more; install torch there anew, or name another by --python"
    elif not traceable:
        hint = f"{TAKES}; `run`, `estimate` and the dashboard work with these"
    return Finding(
        check="torch",
        verdict="warning" if hint else "ok",
        message="; ".join(_line(one, problems.get(one, "")) for one in with_torch),
        hint=hint,
    )


def _line(interpreter: Interpreter, problem: str | None) -> str:
    """What works with it; `problem` is why its torch cannot be imported, None where that is not known in time."""
    if problem:
        return f"{interpreter.line()}, which cannot be imported: {problem}"
    works = "run" if interpreter.refusal else "run, trace"
    return f"{interpreter.line()}: {works}" + (" (still loading when this was written)" if problem is None else "")


CHECKS = (
    Check("namespaces", namespaces),
    Check("terminal", terminal),
    Check("folders", folders),
    Check("torch", torch),
)
