"""`vramtui doctor`: check the driver and the machine, or show the settings."""

import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec

from vramtui.cli.common.console import plain_console, print_json, text_width
from vramtui.cli.common.exit_codes import BAD_INPUT, fail
from vramtui.cli.common.open_source import OpenedSource, open_hosts
from vramtui.cli.common.option_groups import HostOptions
from vramtui.cli.options import command_of
from vramtui.core.base.errors import SourceFailed
from vramtui.core.base.text import printable
from vramtui.core.observation.readings import Absence, Sample

Verdict = Literal["ok", "warning", "failed", "unknown"]
SYS, DEVICES = Path("/sys"), Path("/dev")
NVIDIA_CARD, AMD_CARD = "0x10de", "0x1002"  # PCI's numbers of the vendors
DISPLAY = "0x03"  # PCI's classes of GPUs: VGA 0x0300, 3D 0x0302, and accelerators' 0x0380
PATIENCE = 4.0
HOST_INTERVAL = 1.0
HOST_LIMIT = 35.0  # seconds: a first connection may start a Python there, 30 s at most (sources/ssh.py)
NARROWEST, LOWEST = 80, 24
WANTED = ("memory", "processes", "utilization", "power_watts")  # missed most if the driver does not report them
REASONS = {
    Absence.NOT_SUPPORTED: "not supported",
    Absence.NO_PERMISSION: "no permission",
    Absence.LOST: "lost",
    Absence.DRIVER_TOO_OLD: "the driver is too old",
    Absence.NO_ANSWER: "no answer",
    Absence.FIRST_LOOK: "known after the next look",
    Absence.NOT_ASKED: "not asked for",
    Absence.FAILED: "failed",
}


class Finding(msgspec.Struct, frozen=True):
    """The result of one check.

    Attributes:
        check: the check's id.
        verdict: fine; something is not shown or not as good as it could be; the program cannot work; unknown.
        message: one sentence without a full stop.
        hint: the next step, or empty.
    """

    check: str
    verdict: Verdict
    message: str
    hint: str = ""


Check = Callable[[], Finding]
CANNOT_WORK = 2
LIMIT = 8.0  # seconds for all checks together, which are asked at once
MARKS: dict[Verdict, tuple[str, str]] = {
    "ok": ("✓", "ok"),
    "warning": ("!", "warn"),
    "failed": ("✗", "FAIL"),
    "unknown": ("?", "?"),
}


@command_of
def doctor(
    *, json: bool = False, timeout: float | None = None, host: list[str] | None = None, settings: bool = False
) -> None:
    """Check the driver, permissions, terminal, folders and torch, each with a next step; with --host other machines.

    With --settings: every setting as TOML, and every error of the settings file. `vramtui help settings` prints an
    example file.
    """
    if settings:
        _show_settings(json=json)
        return
    # All hosts connect at once.
    hosts = open_hosts(HostOptions(host=host), HOST_INTERVAL) if host else {}
    asked = {name: partial(_look, name, one) for name, one in hosts.items()} or CHECKS
    findings = ask_all(asked, timeout or (HOST_LIMIT if hosts else LIMIT))
    code = exit_code(findings)
    if json:
        print_json({"schema": 1, "exit": code, "checks": findings})
        raise SystemExit(code)
    from rich.table import Table  # rich takes 40 ms to load, which JSON answers need not pay
    from rich.text import Text

    plain = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
    colours: dict[Verdict, str] = {"ok": "green", "warning": "yellow", "failed": "bold red", "unknown": "dim"}
    grid = Table.grid(padding=(0, 2, 0, 0))
    for finding in findings:
        text = Text(finding.message)
        if finding.hint:
            text.append(f"\n{finding.hint}", style="dim")
        grid.add_row(Text(MARKS[finding.verdict][plain], style=colours[finding.verdict]), Text(finding.check), text)
    console = plain_console(None if sys.stdout.isatty() else text_width())
    console.print(grid)
    warns = any(finding.verdict not in {"ok", "unknown"} for finding in findings)
    works = "It works; see the warnings above." if warns else "Everything works."
    failed = next((f"{one.check}: {one.message}" for one in findings if one.verdict == "failed"), "")
    console.print(f"{MARKS['failed'][plain]} Not usable yet: {failed.rstrip('.')}." if code else works)
    raise SystemExit(code)


def _show_settings(*, json: bool) -> None:
    """Print every setting with its source; exit code 2 if the settings file has errors."""
    import msgspec

    from vramtui.cli.common.settings import set_variables, settings_in_force
    from vramtui.core.base import toml
    from vramtui.core.schema.settings import CONFIG
    from vramtui.presets import config_dir
    from vramtui.presets.reader import read_text
    from vramtui.presets.settings import find_setting_problems

    path, in_file = config_dir() / CONFIG, {}
    if path.exists():
        text = read_text(path)
        problems = find_setting_problems(text)
        if problems:
            fail(BAD_INPUT, "\n".join(problem.at(path) for problem in problems))
        in_file = toml.loads(text)
    sources = {f"{table}.{key}": "file" for table, values in in_file.items() for key in values}
    sources |= {key: variable for variable, key in set_variables().items()}
    shown = msgspec.to_builtins(settings_in_force())
    if json:
        print_json({"schema": 1, "path": str(path), "exists": path.exists(), "sources": sources, "settings": shown})
        return
    sys.stdout.write(f"# {path}{'' if path.exists() else ' (does not exist; every setting has its default)'}\n")
    sys.stdout.write(f"# Edit it with: {os.environ.get('VISUAL') or os.environ.get('EDITOR') or '$EDITOR'} {path}\n")
    for table, values in shown.items():
        sys.stdout.write(f"\n[{table}]\n")
        for key, value in values.items():
            name = f'"{key}"' if "." in key else key
            # Strings and lists are the same in JSON and TOML.
            line = f"# {name} is not set" if value is None else f"{name} = {msgspec.json.encode(value).decode()}"
            source = sources.get(f"{table}.{key}")
            sys.stdout.write(f"{line}{f'  # {source}' if source else ''}\n")


def exit_code(findings: list[Finding]) -> int:
    """2 if a check failed, else 0; NVML's failure is a warning if nvidia-smi answers."""
    failed = {finding.check for finding in findings if finding.verdict == "failed"}
    if any(finding.check == "nvidia-smi" and finding.verdict == "ok" for finding in findings):
        failed.discard("nvml")
    return CANNOT_WORK if failed else 0


def ask_all(checks: Mapping[str, Check], limit: float) -> list[Finding]:
    """Run all checks at once; one without an answer within `limit` seconds is left to itself."""
    answers: dict[str, Finding] = {}

    def answer(name: str, check: Check) -> None:
        try:
            answers[name] = check()
        except Exception as error:  # noqa: BLE001 - whatever breaks on a strange machine is one finding, not the end
            if isinstance(error, OSError) and error.strerror:
                file = "" if error.filename is None else f" ({printable(os.fsdecode(error.filename))})"
                answers[name] = Finding(name, "unknown", f"not known: {error.strerror.lower()}{file}")
                return
            reason = printable(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
            answers[name] = Finding(name, "unknown", "the check itself broke", f"Please report: {reason}")

    threads = [threading.Thread(target=answer, args=each, daemon=True) for each in checks.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(limit)
    late, hint = f"no answer within {limit:g} s", "The call hangs; `dmesg` may say more."
    return [answers.get(name, Finding(name, "unknown", late, hint)) for name in checks]


def amdgpu() -> Finding:
    """AMD's GPUs, and whether this user may open them."""
    from vramtui.sources.amdgpu import AmdgpuSource  # loads what other checks do not need

    try:
        sample = AmdgpuSource(SYS).read()
    except SourceFailed:
        if AMD_CARD not in cards():
            return Finding("amdgpu", "unknown", "no AMD GPU")
        return Finding("amdgpu", "failed", "the AMD GPU has no amdgpu driver", "Load the driver: `modprobe amdgpu`.")
    names = ", ".join(sorted({printable(gpu.name) for gpu in sample.gpus}))
    count = f"{len(sample.gpus)} GPU{'s' if len(sample.gpus) > 1 else ''}"
    summary = f"{count} ({names}), {sample.host.driver_version}; context and workspaces are estimated as CUDA's"
    devices = (DEVICES / "kfd", *sorted(DEVICES.glob("dri/renderD*")))
    denied = [str(path) for path in devices if path.exists() and not os.access(path, os.R_OK | os.W_OK)]
    if denied:
        hint = "Join the group that owns them, `render` or `video`, for jobs of your own; nothing is missing here."
        return Finding("amdgpu", "warning", f"{summary}; no access to {', '.join(denied)}", hint)
    return Finding("amdgpu", "ok", summary)


def cards() -> set[str]:
    """The vendors of this machine's GPUs, as PCI numbers them."""
    vendors = set()
    for device in SYS.glob("bus/pci/devices/*"):
        try:
            if (device / "class").read_text().startswith(DISPLAY):
                vendors.add((device / "vendor").read_text().strip())
        except OSError:  # noqa: PERF203 - each of them may go
            continue
    return vendors


def of_nvidia(name: str, check: Check) -> Check:
    """The check if this machine may have an NVIDIA GPU."""

    def ask() -> Finding:
        vendors = cards()
        if AMD_CARD in vendors and NVIDIA_CARD not in vendors:
            return Finding(name, "unknown", "no NVIDIA GPU")
        try:
            return check()
        except SourceFailed as error:
            if name == "nvml":
                return Finding(name, "failed", error.message.rstrip("."), error.hint)
            return Finding(name, "unknown", "NVML has to open first")

    return ask


def _sample() -> Sample:
    from vramtui.sources.nvml.source import NvmlSource  # loads pynvml, which may be the very problem

    return NvmlSource(timeout=PATIENCE).read()


def nvml() -> Finding:
    sample = _sample()
    if sample.gpus:
        return Finding("nvml", "ok", driver_words(sample))
    problem = sample.problems[0] if sample.problems else None
    message = printable(problem.message) if problem else "the driver lists no GPU"
    return Finding("nvml", "failed", message, problem.hint if problem else "")


def driver_words(sample: Sample) -> str:
    """The number and kinds of GPUs, and the versions of the driver and CUDA."""
    names = sorted({printable(gpu.name) for gpu in sample.gpus})
    whole = sum(gpu.mig_parent is None for gpu in sample.gpus)
    count = f"{whole} GPU{'s' if whole > 1 else ''}"
    if whole < len(sample.gpus):
        count += f", {len(sample.gpus) - whole} MIG instance{'s' if len(sample.gpus) - whole > 1 else ''}"
    driver, cuda = sample.host.driver_version or "of unknown version", sample.host.cuda_version or "unknown"
    return f"{count} ({', '.join(names)}), driver {printable(driver)}, CUDA {printable(cuda)}"


def gpus() -> Finding:
    """Every GPU's state, and the readings that matter."""
    sample = _sample()
    if not sample.gpus:
        return Finding("gpus", "unknown", "there is no GPU to ask")
    broken = [f"GPU {gpu.index}: {printable(gpu.reason) or gpu.state}" for gpu in sample.gpus if gpu.state != "ok"]
    if broken:
        hint = "See `dmesg | grep -i xid`; `nvidia-smi --gpu-reset` or a reboot recovers a lost GPU."
        return Finding("gpus", "warning", "; ".join(broken), hint)
    lacking = [
        f"GPU {gpu.index}: {field.replace('_watts', '')} {REASONS[gpu.absent[field]]}"
        for gpu in sample.gpus
        for field in WANTED
        if gpu.mig_parent is None and field in gpu.absent
    ]
    if lacking:
        hint = "What is unknown stays a dash; under MIG, vGPU and WSL the driver does not report it."
        return Finding("gpus", "warning", "; ".join(lacking), hint)
    unsure = ", ".join(str(gpu.index) for gpu in sample.gpus if not gpu.processes_trusted)
    if unsure:
        hint = "This driver's list has a different layout than it reports (510 to 550): upgrade the driver."
        return Finding("gpus", "warning", f"the process list of GPU {unsure} is scrambled", hint)
    return Finding("gpus", "ok", "all answer: memory, processes, utilisation and power")


def nvidia_smi() -> Finding:
    """The second way to the driver."""
    from vramtui.sources.nvidia_smi import NvidiaSmiSource

    try:
        sample = NvidiaSmiSource().read()
    except SourceFailed as error:
        message = f"{error.message.rstrip('.')}; it is used only where NVML cannot be loaded"
        return Finding("nvidia-smi", "warning", message, error.hint)
    return Finding("nvidia-smi", "ok", f"answers for {len(sample.gpus)} GPUs")


def permissions() -> Finding:
    """The driver's device files, and this user's access to them."""
    files = sorted(DEVICES.glob("nvidia[0-9]*")) + [
        path for name in ("nvidiactl", "nvidia-uvm", "dxg") if (path := DEVICES / name).exists()
    ]
    if not files:
        hint = "Load the driver; in a container, pass the devices in with --gpus all."
        return Finding("permissions", "warning", "there are no /dev/nvidia* files", hint)
    denied = [path.name for path in files if not os.access(path, os.R_OK | os.W_OK)]
    if denied:
        hint = "Join the group that owns them (`ls -l /dev/nvidia*`), often `video` or `render`."
        return Finding("permissions", "failed", f"no access to {', '.join(denied)}", hint)
    return Finding("permissions", "ok", f"{len(files)} device files can be opened")


def accounting() -> Finding:
    """The driver's exact peaks of every process."""
    from vramtui.sources.nvml.processes import accounting_modes  # loads pynvml

    modes = accounting_modes()
    off = [str(index) for index, mode in modes.items() if mode is False]
    unknown = [str(index) for index, mode in modes.items() if mode is None]
    if off:
        hint = "`sudo nvidia-smi --accounting-mode=1` lets the driver keep exact peaks; without it they are sampled."
        return Finding("accounting", "warning", f"off on GPU {', '.join(off)}", hint)
    if unknown or not modes:
        where = f"GPU {', '.join(unknown)} does" if unknown else "the driver does"
        return Finding("accounting", "warning", f"{where} not report it; peaks are sampled")
    return Finding("accounting", "ok", "on: the driver keeps exact peaks")


def namespaces() -> Finding:
    """The pid namespace: the driver's pids may mean other processes here."""
    from vramtui.sources.host.host import PidNamespace

    if not PidNamespace().private:
        return Finding("namespaces", "ok", "the host's process ids are visible")
    message = "this is a separate pid namespace: processes outside it appear without a name"
    hint = "Start the container with --pid=host to see names, users and commands of all processes."
    return Finding("namespaces", "warning", message, hint)


def terminal() -> Finding:
    if not sys.stdout.isatty():
        return Finding("terminal", "unknown", "the output is not a terminal")
    size = shutil.get_terminal_size()
    name = os.environ.get("TERM", "")
    if name in ("", "dumb", "unknown"):
        hint = "Set TERM, for instance to xterm-256color."
        return Finding("terminal", "failed", f"TERM is {name or 'not set'!r}", hint)
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    if "NO_COLOR" in os.environ:
        colours = "no colours (NO_COLOR)"
    elif os.environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        colours = "16 million colours"
    else:
        colours = "256 colours" if "256" in name else "16 colours"
    summary = f"{name}, {size.columns}x{size.lines}, {colours}"
    if encoding != "utf8":
        hint = "Set LANG to a UTF-8 locale, for instance C.UTF-8; until then lines are drawn in ASCII."
        return Finding("terminal", "warning", f"{summary}, encoding {encoding or '?'}", hint)
    if size.columns < NARROWEST or size.lines < LOWEST:
        hint = f"The screen is made for {NARROWEST}x{LOWEST} and more."
        return Finding("terminal", "warning", f"{summary}: it is small", hint)
    return Finding("terminal", "ok", summary)


def folders() -> Finding:
    from vramtui.cli.common.settings import cache_dir, data_dir, state_dir
    from vramtui.presets import config_dir

    chosen = {"config": config_dir(), "data": data_dir()}
    if data_dir() != state_dir():
        chosen |= {"state": state_dir(), "cache": cache_dir()}
    locked = []
    for kind, folder in chosen.items():
        path = folder
        try:
            while not path.exists() and path != path.parent:
                path = path.parent
            tempfile.TemporaryFile(dir=path).close()
        except OSError:
            locked.append(f"{kind} folder {folder}")
    if locked:
        message = f"cannot write to the {' and the '.join(locked)}"
        hint = "Let this user write there, or set VRAMTUI_CONFIG_DIR and VRAMTUI_DATA_DIR."
        return Finding("folders", "warning", message, hint)
    return Finding("folders", "ok", ", ".join(f"{kind} in {path}" for kind, path in chosen.items()))


def torch() -> Finding:
    """Every interpreter within reach, its torch, and whether that can be imported and run dry."""
    from vramtui.dryrun.job_command import import_problem, interpreters
    from vramtui.estimators.torch_facts.releases import TAKES

    with_torch = [one for one in interpreters() if one.torch is not None]
    if not with_torch:
        message = "no Python within reach has torch; only `dry-run` needs it"
        hint = "Activate the job's environment, or name its Python: vramtui dry-run --python PATH SCRIPT"
        return Finding("torch", "warning", message, hint)
    usable = [one for one in with_torch if not one.refusal()]
    with ThreadPoolExecutor(len(with_torch)) as pool:
        problems = dict(zip(usable, pool.map(import_problem, usable), strict=True))
    broken = [one for one, problem in problems.items() if problem]
    hint = ""
    if broken:
        hint = f"`{broken[0].path} -c 'import torch'` shows more; install torch there anew, or name another by --python"
    elif not usable:
        hint = f"{TAKES}; `run`, `estimate` and the dashboard work with these"
    lines = []
    for one in with_torch:
        problem = problems.get(one, "")  # None: unknown in time
        if problem:
            lines.append(f"{one.line()}, which cannot be imported: {problem}")
        else:
            late = " (still loading when this was written)" if problem is None else ""
            lines.append(f"{one.line()}: {'run' if one.refusal() else 'run, dry run'}{late}")
    return Finding("torch", "warning" if hint else "ok", "; ".join(lines), hint)


OF_NVIDIA = {"nvml": nvml, "gpus": gpus, "nvidia-smi": nvidia_smi, "permissions": permissions, "accounting": accounting}
CHECKS: dict[str, Check] = {name: of_nvidia(name, check) for name, check in OF_NVIDIA.items()}
CHECKS |= {"amdgpu": amdgpu, "namespaces": namespaces, "terminal": terminal, "folders": folders, "torch": torch}


def _look(name: str, opened: OpenedSource) -> Finding:
    try:
        sample = opened.source.read()
    except SourceFailed as failure:
        message = printable(failure.message).removeprefix(f"{name}: ").rstrip(".")
        return Finding(name, "failed", message, failure.hint)
    finally:
        opened.source.close()
    if not sample.gpus:
        return Finding(name, "warning", "it answers, and lists no GPU")
    summary = f"{driver_words(sample)}, read by {sample.source}"
    if sample.problems:
        first = sample.problems[0]
        return Finding(name, "warning", summary, f"{printable(first.message)} {first.hint}".strip())
    return Finding(name, "ok", summary)
