import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.installed.sleepers import sleepers
from tests.installed.terminal import Terminal, until
from tests.stub.build import build
from tests.stub.world import MIB, StubGpu, StubProcess, World

LIST = Path(__file__).with_name("loaded_modules.txt")
OTHERS = {"msgspec", "pynvml", "rich", "textual"}
# Large modules that Watch does not need, though Textual or pynvml may import them.
LEFT_OUT = {
    "ast", "curses", "decimal", "difflib", "doctest", "ipaddress", "json", "locale", "multiprocessing", "pdb", "pickle",
    "platform", "random", "shutil", "sqlite3", "ssl", "statistics", "tarfile", "tempfile", "textual.command",
    "traceback", "unicodedata", "unittest", "uuid", "xml",
}  # fmt: skip
# Python runs it before the program; what it loads itself is loaded anyway.
TELLER = """
import _thread, os, sys, time

def tell():
    path = f"{os.environ['LOADED_MODULES']}.{os.getpid()}"  # children have the same environment
    while True:
        with open(f"{path}.new", "w") as report: report.write(" ".join(list(sys.modules)))
        os.replace(f"{path}.new", path)
        time.sleep(0.2)

_thread.start_new_thread(tell, ())
"""


@pytest.mark.pty
def test_the_running_dashboard_has_loaded_what_watch_shows_and_nothing_else(program: str, tmp_path: Path) -> None:
    """A module that comes to it is 10 to 100 KB of memory and some tenths of a millisecond of each start: it is loaded
    where it is used, or added to the list.
    """
    state = tmp_path / "world"
    wanted = set(LIST.read_text(encoding="utf-8").split())
    with sleepers([("job-0001", "train.py")]) as (pid,):
        World([StubGpu(used=1000 * MIB, processes=[StubProcess(pid, 900 * MIB)])]).write(state)
        environment: dict[str, str | None] = {
            "LD_LIBRARY_PATH": str(build()), "VRAMTUI_STUB_STATE": str(state),
            "VRAMTUI_CONFIG_DIR": str(tmp_path / "config"), "VRAMTUI_DATA_DIR": str(tmp_path / "data"),
            "PYTHONPATH": str(tmp_path), "LOADED_MODULES": str(tmp_path / "report"),
        }  # fmt: skip
        (tmp_path / "sitecustomize.py").write_text(TELLER, encoding="utf-8")
        with Terminal([program], size=(120, 40), env=environment) as terminal:
            terminal.wait_for("job-0001", "all 0.9 GiB")

            def loaded() -> set[str]:
                return set((tmp_path / f"report.{terminal.process.pid}").read_text(encoding="utf-8").split())

            with suppress(AssertionError):  # what is missing is said below
                until(lambda: wanted <= loaded())
            time.sleep(2)  # two more samples
            seen = loaded()
            assert "FAILED" not in terminal.text
            terminal.send("q")
    assert sorted(name for name in seen if name.split(".")[0] == "vramtui") == sorted(wanted)
    others = {name.split(".")[0] for name in seen} - set(sys.stdlib_module_names)
    assert {name for name in others if not name.startswith(("_", "sitecustomize"))} == {*OTHERS, "vramtui"}
    assert seen & LEFT_OUT == set()
