import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


# A picture of each screen; the others, of other sizes and themes, are looked at by `make screenshots`, not by each run:
# all of them take a minute of two cores.
LOOKED_AT = ("watch-dark", "monitor-80-dark", "plan-dark", "timeline-80", "history-dark", "editor-80")


@pytest.mark.slow
def test_no_picture_is_older_than_the_program() -> None:
    made = subprocess.run(
        [sys.executable, ROOT / "screenshots" / "make.py", "--check", *LOOKED_AT],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr


def test_every_picture_is_shown_and_the_moving_one_is_small() -> None:
    pages = (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    assert all(f"screenshots/{path.name}" in text for path in (ROOT / "screenshots").glob("*-dark.png"))
    text = (ROOT / "screenshots" / "tour.svg").read_text(encoding="utf-8")
    assert len(text.encode()) < 300_000
    assert text.count("@keyframes") == text.count("step-end infinite") >= 4
    # What plays no animation shows the first picture alone; nothing is fetched from anywhere.
    assert "visibility:hidden}" in text
    assert "url(" not in text
    assert "screenshots/tour.svg" in (ROOT / "docs" / "first-ten-minutes.md").read_text(encoding="utf-8")
