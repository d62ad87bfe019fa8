"""Where the program begins: `vramtui` and `python -m vramtui`."""

import sys


def main() -> None:
    """Run the command line. `--version` alone answers before anything is imported: scripts ask it often."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        from vramtui import __version__  # noqa: PLC0415 - the only import this answer needs

        sys.stdout.write(f"vramtui {__version__}\n")
        return
    from vramtui.cli.main import run  # noqa: PLC0415 - as above

    run()


if __name__ == "__main__":
    main()
