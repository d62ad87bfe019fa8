"""The screens of vramtui, nvitop and nvtop on the same stand-in host, side by side in docs/watch.md.

python benchmarks/rivals_pictures.py FOLDER [--sizes 80x24,120x35,200x50] [--hosts 1x1,8x64,mig]

Writes HOST-SIZE-PROGRAM.svg, and a PNG of each where Chromium is installed. nvitop is installed into a folder that is
gone afterwards; nvtop is taken from PATH. Look at them before they go into the documentation: each program draws what
it saw at that moment.
"""

import argparse
import io
import sys
import time
from dataclasses import replace
from pathlib import Path

from pyte.screens import Char
from rich.console import Console
from rich.segment import Segment, Segments
from rich.style import Style
from rich.terminal_theme import MONOKAI

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "screenshots"))

from make import to_png  # type: ignore[import-not-found]  # no package: it stands beside the pictures

from benchmarks.crowd import Crowd, host_of
from benchmarks.dashboard import Program, size_of
from benchmarks.rivals import rivals
from tests.installed.terminal import Terminal
from vramtui.app.export.portable_svg import portable
from vramtui.app.ui.header import BEAT

SECONDS = 30.0  # until graphs have something to show
PROGRAMS = ["vramtui --monitor", "nvitop", "nvtop"]
ACS = {"NCURSES_NO_UTF8_ACS": "1"}  # let ncurses draw lines by Unicode: pyte knows no other


def picture(program: Program, host: Crowd, size: tuple[int, int]) -> str:
    """What a program shows of the host after a while, as SVG."""
    with host.wandering(1.0), Terminal(program.command, size=size, env={**host.environment, **ACS}) as terminal:
        time.sleep(SECONDS)
        while not 1 < time.time() % (2 * BEAT) < BEAT - 1:  # the colon of our clock stands
            time.sleep(0.1)
        assert terminal.text.strip(), f"{program.name} shows nothing"
        console = Console(record=True, width=size[0], file=io.StringIO(), color_system="truecolor", force_terminal=True)
        for y in range(size[1]):
            row = terminal.screen.buffer[y]
            cells = [Segment(row[x].data, _style(row[x])) for x in range(size[0])]
            console.print(Segments([*Segment.simplify(cells), Segment.line()]), end="")
        terminal.send(program.leave)
        terminal.process.wait(30)
    return portable(console.export_svg(title=program.name, theme=MONOKAI, unique_id="terminal"))


def _style(cell: Char) -> Style:
    return Style(
        color=_colour(cell.fg),
        bgcolor=_colour(cell.bg),
        bold=cell.bold,
        reverse=cell.reverse,
        underline=cell.underscore,
    )


def _colour(name: str) -> str | None:
    """Rich's name for a colour of pyte's."""
    if name == "default":
        return None
    if len(name) == 6 and all(letter in "0123456789abcdef" for letter in name):
        return f"#{name}"
    name = "yellow" if name == "brown" else name
    return name.replace("bright", "bright_")


def _as_started(program: Program) -> Program:
    """As people start it: nvitop chooses by itself how much of a GPU it shows, and rivals.py asks for all of it."""
    return replace(program, command=program.command[:1]) if program.name == "nvitop" else program


def main() -> None:
    """Take every picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sizes", default="80x24,120x35,200x50")
    parser.add_argument("--hosts", default="1x1,8x64,mig", help="GPUs x processes on each; mig: a divided card")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    with rivals(PROGRAMS, 1.0) as (found, missing):
        for name, why in missing.items():
            print(f"{name}: {why}")
        for kind in options.hosts.split(","):
            with host_of(kind) as host:
                for size in options.sizes.split(","):
                    for program in map(_as_started, found):
                        svg = options.folder / f"{kind}-{size}-{program.name.split()[0]}.svg"
                        svg.write_text(picture(program, host, size_of(size)))
                        to_png(svg)


if __name__ == "__main__":
    main()
