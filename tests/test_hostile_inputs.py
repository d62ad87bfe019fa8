import contextlib
import os
import re
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.examples import a_run
from tests.tables import rows
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import CARDS, DEFAULT_CARD
from vramtui.estimators.analytic import ANALYTIC
from vramtui.presets.named_presets import preset_named
from vramtui.presets.reader import load_preset
from vramtui.presets.schema import MOST_UNKNOWN
from vramtui.records.memory_snapshot import read_bytes
from vramtui.records.run_history import RunHistory

BUNDLED = Path(__file__).parents[1] / "presets"
LIMITED = "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)); "


def test_files_that_ask_for_too_much_or_are_not_text_are_one_sentence(tmp_path: Path) -> None:
    """On a login node a process may have no more than a gigabyte."""
    file = tmp_path / "small"
    file.write_bytes(b"x" * 100)
    code = f"{LIMITED}from pathlib import Path; from {read_bytes.__module__} import read_bytes; "
    code += f"assert len(read_bytes(Path({str(file)!r}))) == 100"
    subprocess.run([sys.executable, "-c", code], check=True)
    text = 'name = "x"\n' + "".join(f"key{number} = 1\n" for number in range(40_000))
    file = tmp_path / "many.toml"
    file.write_text(text)
    from vramtui.presets import PresetLibrary  # noqa: PLC0415 - loads much

    begun = time.thread_time()
    with pytest.raises(UserError, match="key0 is not a key of a preset"):
        preset_named(str(file), PresetLibrary())
    assert time.thread_time() - begun < 10
    assert MOST_UNKNOWN == 100
    history = RunHistory(tmp_path / "runs.db")
    history.keep(a_run())
    with closing(sqlite3.connect(history.path)) as database:
        database.execute("PRAGMA journal_mode = DELETE")
    whole = history.path.read_bytes()
    history.path.write_bytes(whole.replace(b"CREATE INDEX runs_by_time", b"CREATE \xc8\xff\xfe\xc8 runs_by_time"))
    with pytest.raises(UserError, match="cannot be used"):
        history.runs()


@pytest.mark.parametrize("layers", [1 << 31, 1 << 40])
@pytest.mark.parametrize(
    ("name", "key"), [("qwen-3-30b-a3b-infer", "num_hidden_layers"), ("lstm-language-model", "num_layers")]
)
def test_more_layers_than_there_are_are_counted_by_no_loop(name: str, key: str, layers: int, tmp_path: Path) -> None:
    """Of experts and of recurrent layers each was looked at: hours."""
    (path,) = BUNDLED.rglob(f"{name}.toml")
    text, count = re.subn(rf"(?m)^{key} = \d+$", f"{key} = {layers}", path.read_text())
    assert count == 1
    (tmp_path / "deep.toml").write_text(re.sub(r"(?m)^parameters = \d+\n", "", text))
    begun = time.process_time()
    with contextlib.suppress(UserError):
        ANALYTIC.estimate(load_preset(tmp_path / "deep.toml").workload, CARDS[DEFAULT_CARD])
    assert time.process_time() - begun < 5


@pytest.mark.parametrize(("redirect", "environment", "code"), rows(__file__, "outputs_that_cannot_take_everything"))
def test_outputs_that_cannot_take_everything(redirect: str, environment: dict[str, str], code: int) -> None:
    done = subprocess.run(
        ["sh", "-c", f'"$0" -m vramtui ps --demo {redirect}', sys.executable],
        env={**os.environ, **environment},
        capture_output=True,
        check=False,
    )
    assert b"Traceback" not in done.stderr
    assert done.returncode == code, done.stderr
    if code:
        assert b"the output cannot be written: No space left on device" in done.stderr
