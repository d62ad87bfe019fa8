"""`vramtui doctor`: what stands between this program and this machine's GPUs."""

import sys
from typing import Annotated

import typer

from vramtui.cli.common.console import plain_console, print_json, text_width
from vramtui.cli.common.exit_codes import exit_on_user_error
from vramtui.cli.doctor.check import Finding, Verdict, ask_all
from vramtui.cli.options.shared_options import HostOption

CANNOT_WORK = 2
LIMIT = 8.0  # seconds for all checks together, which are asked at once
UNFIT = "Not usable yet: fix the first ✗."
MARKS: dict[Verdict, tuple[str, str]] = {
    "ok": ("✓", "ok"),
    "warning": ("!", "warn"),
    "failed": ("✗", "FAIL"),
    "unknown": ("?", "?"),
}


def doctor(
    json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
    timeout: Annotated[
        float | None, typer.Option(min=0.1, help="Seconds that a check may take (8; for hosts 35).", show_default=False)
    ] = None,
    host: HostOption = None,
) -> None:
    """Check the driver, permissions, terminal, folders and torch, each with a next step; with --host other machines."""
    with exit_on_user_error():
        from vramtui.cli.doctor import driver, machine

        if host:
            from vramtui.cli.doctor import hosts

            findings = ask_all(hosts.checks(host), timeout or hosts.LIMIT)
        else:
            findings = ask_all((*driver.CHECKS, *machine.CHECKS), timeout or LIMIT)
        code = exit_code(findings)
        if json:
            print_json({"schema": 1, "exit": code, "checks": findings})
        else:
            _print(findings, code)
        sys.stdout.flush()
    raise SystemExit(code)


def exit_code(findings: list[Finding]) -> int:
    """2 when a check failed, else 0; NVML's failure is a warning where nvidia-smi answers in its place."""
    failed = {finding.check for finding in findings if finding.verdict == "failed"}
    if any(finding.check == "nvidia-smi" and finding.verdict == "ok" for finding in findings):
        failed.discard("nvml")
    return CANNOT_WORK if failed else 0


def _print(findings: list[Finding], code: int) -> None:
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
    console.print(UNFIT if code else works)
