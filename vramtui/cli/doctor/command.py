"""`vramtui doctor`: check the driver and the machine, or show the settings."""

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from vramtui.cli.common.console import plain_console, print_json, text_width
from vramtui.cli.common.exit_codes import BAD_INPUT, exit_on_user_error, fail
from vramtui.cli.options import HostOption

if TYPE_CHECKING:
    from vramtui.cli.doctor.checks import Finding, Verdict

CANNOT_WORK = 2
LIMIT = 8.0  # seconds for all checks together, which are asked at once
MARKS: "dict[Verdict, tuple[str, str]]" = {
    "ok": ("✓", "ok"),
    "warning": ("!", "warn"),
    "failed": ("✗", "FAIL"),
    "unknown": ("?", "?"),
}


def doctor(
    json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
    timeout: Annotated[
        float | None,
        typer.Option(min=0.1, help="Time limit of each check (8 seconds; 35 for hosts).", show_default=False),
    ] = None,
    host: HostOption = None,
    settings: Annotated[
        bool, typer.Option("--settings", help="Show each setting, its value and where it comes from.")
    ] = False,
) -> None:
    """Check the driver, permissions, terminal, folders and torch, each with a next step; with --host other machines.

    With --settings: every setting as TOML, and every error of the settings file. `vramtui help settings` prints an
    example file.
    """
    with exit_on_user_error():
        if settings:
            _show_settings(json=json)
            return
        from vramtui.cli.doctor.checks import CHECKS, HOST_LIMIT, ask_all, host_checks

        asked, limit = (host_checks(host), HOST_LIMIT) if host else (CHECKS, LIMIT)
        findings = ask_all(asked, timeout or limit)
        code = exit_code(findings)
        if json:
            print_json({"schema": 1, "exit": code, "checks": findings})
        else:
            _print(findings, code)
        sys.stdout.flush()
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


def exit_code(findings: "list[Finding]") -> int:
    """2 if a check failed, else 0; NVML's failure is a warning if nvidia-smi answers."""
    failed = {finding.check for finding in findings if finding.verdict == "failed"}
    if any(finding.check == "nvidia-smi" and finding.verdict == "ok" for finding in findings):
        failed.discard("nvml")
    return CANNOT_WORK if failed else 0


def _print(findings: "list[Finding]", code: int) -> None:
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
    console.print(f"{MARKS['failed'][plain]} Not usable yet: {failed}." if code else works)
