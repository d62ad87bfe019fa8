"""A terminal for a program under test: a pseudo-terminal, what stands on its screen, and what is left when it ends."""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import termios
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

import psutil
import pyte
from pyte.screens import Char

LOOKS = 10  # of 0.05 s each
PATIENCE = 90.0  # seconds; only what never happens takes so long
ON_AT_FIRST = {7: "line wrap", 25: "the cursor"}

_MODES = re.compile(rb"\x1b\[\?([\d;]+)([hl])")
# Synchronized output (mode 2026): Textual asks for it, and puts each frame between these where the terminal has it.
ASKED, ANSWER = b"\x1b[?2026$p", b"\x1b[?2026;2$y"
BEGIN, END = b"\x1b[?2026h", b"\x1b[?2026l"
_KITTY = re.compile(rb"\x1b\[([<>])[\d;]*u")
# pyte would take these for others, or show their letters.
_UNKNOWN_TO_PYTE = re.compile(rb"\x1b\[[<>=][\d;]*[A-Za-z]")
_UNFINISHED = re.compile(rb"\x1b(?:\[[\d;?<>=$ ]*)?\Z")


def seen(char: Char) -> Char:
    """A cell as it is seen: where nothing is written, and nothing drawn through it, nobody sees the ink."""
    is_blank = char.data == " " and not (char.reverse or char.underscore or char.strikethrough)
    return Char(" ", bg=char.bg) if is_blank else char


def until(found: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Terminal:
    """Runs a program with a terminal of its own and looks at it.

    The program's output is read as it comes, by a thread; it is drawn on the screen when somebody looks. With
    `whole_frames` the terminal has synchronized output, and a frame in several pieces is drawn once it is whole. None
    in `env` takes a name out of the environment; `keep` remembers everything that was sent, in `sent`.
    """

    def __init__(
        self,
        command: Sequence[str],
        size: tuple[int, int] = (120, 35),
        env: dict[str, str | None] | None = None,
        *,
        cwd: Path | None = None,
        keep: bool = True,
        whole_frames: bool = True,
    ) -> None:
        self.sent = bytearray()
        self.bytes_sent = 0
        self.modes: dict[int, bool] = {}
        self.keyboards = 0
        self.drawn_at = 0.0
        self._keep = keep
        self._whole_frames = whole_frames
        self._tail = b""  # of what was read, as the question may come in two pieces
        self.screen = pyte.Screen(*size)
        self._stream = pyte.ByteStream(self.screen)
        self._lines: dict[int, str] = {}
        self._arrived: deque[tuple[float, bytes]] = deque()
        self._news = threading.Event()
        self._rest = b""
        self._master, self._slave = pty.openpty()
        self._set_size(size)
        self._attributes = termios.tcgetattr(self._slave)
        wanted = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8", **(env or {})}
        self.started_at = time.monotonic()
        self.process = subprocess.Popen(
            list(command),
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            env={name: value for name, value in wanted.items() if value is not None},
            cwd=cwd,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - one system call, which takes no lock
        )
        self._open, self._is_held = True, False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> "Terminal":  # noqa: PYI034 - Python 3.10 has no Self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def text(self) -> str:
        self._draw()
        return self._shown()

    def wait_for(self, *texts: str) -> str:
        return self.wait(lambda screen: all(text in screen for text in texts), f"{texts}")

    def wait(self, holds: Callable[[str], bool], what: str = "the screen to change", patience: float = PATIENCE) -> str:
        """The screen as soon as `holds` says so. `drawn_at` is then when the deciding bytes arrived.

        Raises:
            AssertionError: it never did, or the program ended first; shows the screen.
        """
        deadline = time.monotonic() + patience
        while True:
            ended = self.process.poll() is not None and not self._reader.is_alive()
            while self._draw_one():
                if holds(self._shown()):
                    return self._shown()
            if holds(self._shown()):
                return self._shown()
            if ended or time.monotonic() > deadline:
                why = f"the program ended with {self.process.returncode}" if ended else f"{patience:.0f} s passed"
                raise AssertionError(f"waiting for {what}, {why}:\n{self._shown()}")
            self._news.wait(0.05)
            self._news.clear()

    def send(self, keys: str) -> None:
        """Type; a lone surrogate is a byte of no UTF-8."""
        os.write(self._master, keys.encode("utf-8", "surrogateescape"))

    def resize(self, size: tuple[int, int]) -> None:
        self._draw()
        self.screen.resize(size[1], size[0])
        self._set_size(size)
        self.process.send_signal(signal.SIGWINCH)

    def rest(self, turns: int = 8) -> None:
        """Wait until all that the program had to send is on the screen.

        It is known by the program going to sleep that often without having sent anything, or by its sleeping at each of
        ten looks in half a second: one that is short of a processor sends nothing for long either, but it does not
        sleep, and one that has nothing to do but its clock does not wake that often before it sends the next second.
        """
        program = psutil.Process(self.process.pid)
        before = self.bytes_sent, program.num_ctx_switches().voluntary
        deadline = time.monotonic() + PATIENCE
        asleep = 0
        while True:
            self._news.wait(0.05)
            self._news.clear()
            now = self.bytes_sent, program.num_ctx_switches().voluntary
            asleep = asleep + 1 if now[0] == before[0] and program.status() == psutil.STATUS_SLEEPING else 0
            if now[0] != before[0]:
                before = now
            elif (now[1] >= before[1] + turns or asleep >= LOOKS) and not self._arrives():
                return self._draw()
            assert time.monotonic() < deadline, f"it never rests:\n{self.text}"

    def skip(self) -> None:
        """Never draw what has come so far and nobody has looked at: of an hour's output only the end matters."""
        self._arrived.clear()

    def ended(self, patience: float = PATIENCE) -> int:
        """The exit code, once the program has ended and all it sent has been read (negative: the signal's number)."""
        code = self.process.wait(patience)
        self._reader.join(patience)
        self._draw()
        self._feed(self._rest)  # nothing will make it whole
        self._rest = b""
        return code

    def leave(self, keys: str = "q", code: int = 0) -> None:
        """Type what ends the program: it ends with `code`, and the terminal is as it was."""
        self.send(keys)
        assert (self.ended(), self.left_behind()) == (code, [])

    def left_behind(self) -> list[str]:
        self._draw()
        on = {mode for mode, is_on in self.modes.items() if is_on}
        left = [f"mode {mode} is on" for mode in sorted(on - ON_AT_FIRST.keys())]
        left += [f"{name} is off" for mode, name in ON_AT_FIRST.items() if not self.modes.get(mode, True)]
        if self.keyboards:
            left.append("the keyboard protocol is on")
        if termios.tcgetattr(self._slave) != self._attributes:
            left.append("the terminal's settings are others")
        return left

    @property
    def makes_signals(self) -> bool:
        """Whether Ctrl+C and Ctrl+Z are signals now, as a shell has it, and not keys."""
        return bool(termios.tcgetattr(self._slave)[3] & termios.ISIG)

    def usage(self) -> tuple[float, int]:
        """CPU seconds and resident bytes of the program and what it started, whether that still runs or not."""
        main = psutil.Process(self.process.pid)
        everyone = [main, *main.children(recursive=True)]
        seconds = resident = 0.0
        for one in everyone:
            with contextlib.suppress(psutil.NoSuchProcess, OSError):
                times = one.cpu_times()  # in hundredths; of itself the kernel's clock (MAKE_PROCESS_CPUCLOCK) says more
                seconds += time.clock_gettime(~one.pid << 3 | 2) + times.children_user + times.children_system
                resident += one.memory_info().rss
        return seconds, int(resident)

    def hold(self) -> None:
        """Take nothing of what the program sends any more, as a connection that hangs; keys still arrive."""
        self._is_held = True

    def hang_up(self) -> None:
        os.close(self._slave)
        self._open = False
        self._reader.join(PATIENCE)
        os.close(self._master)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self._open:
            self._open = False
            self._reader.join(PATIENCE)
            os.close(self._master)
            os.close(self._slave)

    def _set_size(self, size: tuple[int, int]) -> None:
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))

    def _read(self) -> None:
        # We hold the other end open too, so its end is no end of file: it has ended when the program has.
        while True:
            over = not self._open or self.process.poll() is not None
            if self._is_held and not over:
                time.sleep(0.02)
                continue
            ready, _, _ = select.select([self._master], [], [], 0 if over else 0.02)
            if not ready:
                if over:
                    break
                continue
            try:
                data = os.read(self._master, 1 << 16)
            except OSError:
                break
            self._arrived.append((time.monotonic(), data))
            self.bytes_sent += len(data)
            self._news.set()
            if self._whole_frames:
                self._answer(data)
        self._news.set()

    def _answer(self, data: bytes) -> None:
        data = self._tail + data
        for _ in range(data.count(ASKED)):
            os.write(self._master, ANSWER)
        self._tail = data.rpartition(ASKED)[2][1 - len(ASKED) :]

    def _arrives(self) -> bool:
        return bool(select.select([self._master], [], [], 0)[0])

    def _draw(self) -> None:
        while self._draw_one():
            pass

    def _draw_one(self) -> bool:
        if not self._arrived:
            return False
        self.drawn_at, data = self._arrived.popleft()
        if self._keep:
            self.sent += data
        data = self._rest + data
        unfinished = _UNFINISHED.search(data)
        cut = unfinished.start() if unfinished else len(data)
        begun = data.rfind(BEGIN)
        if begun > data.rfind(END):
            cut = min(cut, begun)
        data, self._rest = data[:cut], data[cut:]
        self._feed(data)
        return True

    def _feed(self, data: bytes) -> None:
        for match in _MODES.finditer(data):
            for mode in match[1].split(b";"):
                self.modes[int(mode)] = match[2] == b"h"
        for match in _KITTY.finditer(data):
            self.keyboards = max(0, self.keyboards + (1 if match[1] == b">" else -1))
        self._stream.feed(_UNKNOWN_TO_PYTE.sub(b"", data))

    def _shown(self) -> str:
        """The text of the screen; only lines that were drawn on since are put together again."""
        for row in self.screen.dirty:
            line = self.screen.buffer[row]
            self._lines[row] = "".join([line[column].data for column in range(self.screen.columns)])
        self.screen.dirty.clear()
        return "\n".join([self._lines[row] for row in range(self.screen.lines)])
