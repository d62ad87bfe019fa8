import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _crashes(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tests.crashes", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("every", "subject", "count"),
    [(4, "history", 2), (1, "preset", 1), (1, "settings", 1), (1, "new", 1), (1, "recording", 2), (3, "snapshot", 1)],
)
def test_old_or_new_never_neither(every: int, subject: str, count: int) -> None:
    done = _crashes("--every", str(every), subject)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert done.stdout.count(" 0 broken\n") == count


def test_what_is_written_carelessly_is_found() -> None:
    done = _crashes("careless")
    assert done.returncode == 1
    assert "careless: call 1 is half done: killed: neither:" in done.stdout
