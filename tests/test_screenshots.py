"""The documentation's pictures show the program as it is."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_no_picture_is_older_than_the_program() -> None:
    made = subprocess.run(
        [sys.executable, ROOT / "screenshots" / "make.py", "--check"], capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr


def test_every_picture_is_shown_somewhere() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert all(f"screenshots/{path.name}" in text for path in (ROOT / "screenshots").glob("*-dark.png"))
