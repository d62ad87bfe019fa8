"""The program's start: `vramtui` and `python -m vramtui`."""

import atexit
import gc
import io
import os
import sys
import time

CORE_ALONE = (
    "vramtui-core has no commands; the program is the distribution vramtui, which moves no package of this environment "
    "where it has one of its own (`uv tool install vramtui` or pipx):"
)


def main() -> None:
    """Run the command line; with only vramtui-core, which has none, say where it is to be had.

    The ways it is most often started, `vramtui` alone or with `--monitor` and `--version`, and `vramtui ps`, go past
    the parser, whose loading takes longer than their own work.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # an output that is closed
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123 - it stays open to the end
    asked = os.environ.get("VRAMTUI_ASCII", "0") not in ("", "0")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not stream.encoding.lower().startswith("utf"):
            stream.reconfigure(errors=_ascii_form())
        elif isinstance(stream, io.TextIOWrapper) and asked and stream.isatty():
            stream.reconfigure(encoding="ascii", errors=_ascii_form())
    try:
        time.time()
    except OverflowError:
        from vramtui.core.base.errors import CLOCK  # noqa: PLC0415 - only where the clock cannot be read

        sys.stderr.write(f"vramtui: {CLOCK}\n")
        raise SystemExit(2) from None
    arguments = sys.argv[1:]
    if arguments in (["--version"], ["-V"]):
        from vramtui import __version__  # noqa: PLC0415 - the only import this answer needs

        try:
            sys.stdout.write(f"vramtui {__version__}\n")
            sys.stdout.flush()
        except OSError:
            from vramtui.cli.common.exit_codes import exit_on_user_error  # noqa: PLC0415 - if nothing can be written

            with exit_on_user_error():
                raise
        return
    # What is loaded stays: looking through it for garbage, now and at the end, is a fifth of what `--help` takes.
    # Whoever works on for long looks again once that is done.
    gc.disable()
    try:
        if arguments in ([], ["--monitor"]) and "_VRAMTUI_COMPLETE" not in os.environ:
            from vramtui.core.base.late import defer  # noqa: PLC0415 - past the parser

            defer()
            from vramtui.cli.common.option_groups import DashboardOptions  # noqa: PLC0415 - past the parser
            from vramtui.cli.dashboard.command import open_dashboard  # noqa: PLC0415 - past the parser

            open_dashboard(DashboardOptions(monitor=bool(arguments)))
        elif arguments in (["ps"], ["ps", "--json"]) and "_VRAMTUI_COMPLETE" not in os.environ:
            atexit.register(gc.freeze)
            from vramtui.core.base.late import defer  # noqa: PLC0415 - past the parser

            defer()
            from vramtui.cli.common.exit_codes import exit_on_user_error  # noqa: PLC0415 - past the parser
            from vramtui.cli.ps import DEFAULTS, ps  # noqa: PLC0415 - past the parser

            with exit_on_user_error():
                ps(DEFAULTS._replace(json=len(arguments) > 1))
        else:
            atexit.register(gc.freeze)
            from vramtui.cli.main import run  # noqa: PLC0415 - loads the parser

            run()
    except ModuleNotFoundError as error:
        if error.name != "vramtui.cli":
            raise
        sys.stderr.write(f"vramtui: {CORE_ALONE} `vramtui dry-run --python {sys.executable} SCRIPT` takes this one\n")
        raise SystemExit(2) from None


def _ascii_form() -> str:
    """The name of a handler that writes an ASCII character for each that an encoding does not have."""
    import codecs  # noqa: PLC0415 - only where a terminal has no Unicode

    from vramtui.core.base.text import in_ascii  # noqa: PLC0415 - only where a terminal has no Unicode

    codecs.register_error("ascii-form", in_ascii)
    return "ascii-form"


if __name__ == "__main__":
    main()
