"""The frame while Textual is loaded: the first sample's GPUs and processes, at their places on Watch.

Textual takes longer to load than the driver to answer. It then paints over this, cell by cell.
"""

import os
import signal
import sys
import termios
from contextlib import AbstractContextManager
from heapq import nlargest
from operator import itemgetter
from types import FrameType

from vramtui.core.base.colours import GROUND
from vramtui.core.base.late import late
from vramtui.core.base.text import ascii_wanted, brief_command, plain_text, printable
from vramtui.core.base.units import UNKNOWN, format_gib
from vramtui.core.observation.readings import Sample
from vramtui.core.observation.signals import ENDING

OPEN = "\x1b[?1049h\x1b[?25l"  # the alternate screen, and no cursor
CLOSE = "\x1b[0m\x1b[H\x1b[2J\x1b[?1049l\x1b[?25h"
KEYS_WAIT = termios.ECHO | termios.ICANON | termios.ISIG
# Where no character takes two columns: before the first, and dashes and signs (EastAsianWidth.txt of Unicode 16).
FIRST_WIDE, NARROW = 0x1100, range(0x2000, 0x231A)
_east_asian_width = late("unicodedata:east_asian_width")  # a megabyte of tables, for what is not ASCII
TRUE_COLOUR = {"truecolor", "24bit"}


class FirstFrame(AbstractContextManager["FirstFrame"]):
    """The frame, from when it is written until the dashboard takes the terminal over; closed where that fails. It
    `is_shown` while the terminal shows the alternate screen.
    """

    def __init__(self, theme: str | None) -> None:
        self._theme = theme
        self._before: list[object] | None = None
        self.is_shown = False

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.close()

    def show(self, sample: Sample, banner: str | None) -> None:
        """Write the frame. Keys that are typed meanwhile, Ctrl-C and Ctrl-Z too, wait for the dashboard."""
        if not sys.stderr.isatty():  # where Textual draws
            return
        size = os.get_terminal_size(sys.stderr.fileno())
        self._before = termios.tcgetattr(sys.stdin.fileno())
        quiet = [*self._before]
        quiet[3] = self._before[3] & ~KEYS_WAIT  # type: ignore[operator]  # the flags, an int
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, quiet)  # type: ignore[arg-type]  # as they were given

        def end(number: int, _frame: FrameType | None) -> None:
            self.close()
            os._exit(128 + number)

        for number in ENDING:
            signal.signal(number, end)
        self.is_shown = True
        lines = frame_lines(sample, banner, size.columns, size.lines)
        name, colours = self._theme or "vramtui-dark", ""  # the theme's where the terminal has them; else its own
        if name in GROUND and "NO_COLOR" not in os.environ and os.environ.get("COLORTERM") in TRUE_COLOUR:
            ink, ground = (";".join(map(str, bytes.fromhex(colour[1:]))) for colour in GROUND[name])
            colours = f"\x1b[38;2;{ink};48;2;{ground}m"
        self._write(f"{OPEN}{colours}\x1b[H\x1b[J" + "".join(f"\x1b[{y};1H{line}" for y, line in enumerate(lines, 1)))

    def hand_over(self) -> None:
        """The dashboard sets the terminal up from here on, and finds it as it was but for what is shown."""
        if self._before is not None:
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, self._before)  # type: ignore[arg-type]  # as above
            self._before = None

    def close(self) -> None:
        """Show what was on the terminal before."""
        self.hand_over()
        if self.is_shown:
            self._write(CLOSE)
        self.is_shown = False

    def _write(self, text: str) -> None:
        plain = ascii_wanted(os.environ, sys.stderr.encoding)
        os.write(sys.stderr.fileno(), (plain_text(text) if plain else text).encode(errors="replace"))


def frame_lines(sample: Sample, banner: str | None, width: int, height: int) -> list[str]:
    """The lines of Watch that a sample is enough for, each at its place: header, GPUs and processes."""
    host = sample.host
    driver = f"driver {host.driver_version}" if host.driver_version else ""
    lines = [" " + "  ".join(("vramtui", printable(host.name), printable(driver)))]
    lines += [f" {printable(banner)}"] if banner else []
    lines.append("")
    for gpu in sample.gpus:
        state = printable(gpu.reason)
        if gpu.state == "ok":
            state = f"{format_gib(gpu.memory.used):>5}/{format_gib(gpu.memory.total)} GiB"
            state += "" if gpu.utilization is None else f" {gpu.utilization:>3} %"
        lines.append(f"  {gpu.index:>2} {printable(gpu.name)} {state}")
    lines += ["", "", "     PID  GPU USER     NOW GiB COMMAND"]
    rows = [(size or 0, gpu, at) for gpu in sample.gpus for at, size in enumerate(gpu.sizes)]
    for size, gpu, at in nlargest(height, rows, key=itemgetter(0)):
        process = gpu.facts[at]
        memory = "N/A" if gpu.sizes[at] is None else format_gib(size)
        command, user = printable(process.command_or_name or UNKNOWN), printable(process.user or UNKNOWN)
        line = f" {process.pid:>7} {gpu.index:>4} {user[:8]:<8} {memory:>7} "
        lines.append(line + (command if len(line + command) <= width else brief_command(command)))
    return [_cut(line, width) for line in lines[: height - 1]]


def _cut(line: str, width: int) -> str:
    """`line` in at most `width` columns; with a mark at its end where some of it is left out."""
    taken, room = 0, 0
    for place, character in enumerate(line):
        is_narrow = ord(character) < FIRST_WIDE or ord(character) in NARROW
        taken += 1 if is_narrow or _east_asian_width(character) not in "WF" else 2
        if taken > width:
            return f"{line[:room]}…"
        if taken < width:
            room = place + 1
    return line
