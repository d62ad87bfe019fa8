"""Where the program begins: `vramtui` and `python -m vramtui`."""

import os
import sys


def main() -> None:
    """Run the command line.

    The two ways it is most often started, `vramtui` alone and `--version`, go past the parser: loading that takes
    longer than their own work.
    """
    _make_streams_writable()
    arguments = sys.argv[1:]
    if arguments in (["--version"], ["-V"]):
        from vramtui import __version__  # noqa: PLC0415 - the only import this answer needs

        sys.stdout.write(f"vramtui {__version__}\n")
    elif not arguments and "_VRAMTUI_COMPLETE" not in os.environ:
        from vramtui.cli.dashboard.command import open_dashboard  # noqa: PLC0415 - as above

        open_dashboard()
    else:
        from vramtui.cli.main import run  # noqa: PLC0415 - as above

        run()


def _make_streams_writable() -> None:
    """A character that the output's encoding does not have is no reason to end; nor is an output that is closed."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123 - it stays open to the end
        elif stream.encoding.lower().replace("-", "") != "utf8":
            stream.reconfigure(errors="replace")


if __name__ == "__main__":
    main()
