"""Where the program begins: `vramtui` and `python -m vramtui`."""

import os
import sys


def main() -> None:
    """Run the command line.

    The two ways it is most often started, `vramtui` alone and `--version`, go past the parser: loading that takes
    longer than their own work.
    """
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


if __name__ == "__main__":
    main()
