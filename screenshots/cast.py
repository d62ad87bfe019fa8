"""Record the documentation's cast, `demo.cast`: the demo played by a script; `asciinema play` shows it.

The format is asciicast v2: https://docs.asciinema.org/manual/asciicast/v2/
"""

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from codecs import getincrementaldecoder
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
COLUMNS, ROWS = 120, 35
DOWN, ESCAPE = "\x1b[B", "\x1b"
# What is typed, and how many seconds it is looked at.
SCRIPT = (
    ("", 3.0),
    (DOWN, 0.8),
    (DOWN, 0.8),
    (DOWN, 0.8),
    (DOWN, 2.0),
    ("]", 0.7),
    ("]", 0.7),
    ("]", 0.7),
    ("]", 2.0),
    ("u", 1.5),
    ("x", 3.0),
    (ESCAPE, 1.0),
    ("2", 4.0),
    ("1", 1.0),
    ("3", 4.0),
    ("4", 3.0),
    ("1", 1.0),
    ("p", 1.5),
    ("llama", 2.0),
    ("\r", 2.0),
    ("?", 2.5),
    (ESCAPE, 1.0),
    ("q", 0.5),
)


def played() -> Iterator[tuple[float, str]]:
    """What the program writes, and after how many seconds."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}
        env |= {"VRAMTUI_DATA_DIR": f"{folder}/data", "VRAMTUI_CONFIG_DIR": f"{folder}/config"}
        command = [sys.executable, "-m", "vramtui", "--demo"]
        program = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env, start_new_session=True)
        os.close(theirs)
        decode = getincrementaldecoder("utf-8")("replace").decode
        began = time.monotonic()
        for keys, seconds in SCRIPT:
            os.write(ours, keys.encode())
            until = time.monotonic() + seconds
            while (left := until - time.monotonic()) > 0:
                if select.select([ours], [], [], left)[0]:
                    try:
                        text = decode(os.read(ours, 1 << 16))
                    except OSError:
                        break
                    yield time.monotonic() - began, text
        program.wait(timeout=10)
        os.close(ours)


def main() -> None:
    """Write `demo.cast`."""
    title = {
        "version": 2,
        "width": COLUMNS,
        "height": ROWS,
        "title": "vramtui --demo",
        "env": {"TERM": "xterm-256color"},
    }
    lines = [json.dumps(title)]
    lines += [json.dumps([round(at, 3), "o", text], ensure_ascii=False) for at, text in played()]
    path = HERE / "demo.cast"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{path.name}: {len(lines) - 1} writes, {path.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
