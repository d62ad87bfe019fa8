import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import invoke
from tests.tables import rows
from vramtui.cli.common.exit_codes import exit_on_user_error, for_terminal
from vramtui.cli.common.plot import Bars
from vramtui.cli.dry_run import print_largest
from vramtui.dryrun.result import LiveAllocation
from vramtui.presets.importers.derived import derive

PRESET = "gpt2-124m"


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("VRAMTUI_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    (tmp_path / "log.txt").write_text("hello")
    (tmp_path / "cut.json").write_text('{"model_type": "llama",\n "hidden_size"')
    (tmp_path / "nothing.json").write_text("")
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "empty").mkdir()
    return tmp_path


@pytest.mark.parametrize(("arguments", "told"), rows(__file__, "the_sentence_has_what_was_meant"))
def test_the_sentence_has_what_was_meant(arguments: list[str], told: str) -> None:
    done = invoke(*arguments)
    assert done.exit_code == 2
    assert told in " ".join(done.stderr.split()), done.stderr


def test_unknown_options_scripts_and_missing_files_are_answered() -> None:
    done = invoke("run", "train.py")
    assert done.exit_code == 127
    assert "it is a script: vramtui run python train.py" in " ".join(done.stderr.split())
    done = invoke("estimate", PRESET, "--foo", "8")
    assert done.exit_code == 2
    assert "--set" not in done.stderr
    over = ["--over", "batch=1:4", "--over", "seq_len=512:1024:512"]
    assert invoke("fit", PRESET, "--gpu", "H100", *over).exit_code == 0
    assert derive(2**22 + 1, f"vllm serve --model-path {'9' * 300}") is None
    assert derive(2**22 + 1, f"python chat.py --model ~nobody-at-all/{'9' * 300}") is None


def test_a_sentence_breaks_between_words_and_never_inside_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    sentence = (
        "vramtui: some-rather-long/name is no preset, no file; `vramtui estimate some-rather-long/name --hub` asks"
    )
    assert for_terminal(sentence) == sentence  # nobody's terminal
    monkeypatch.setattr(os, "get_terminal_size", lambda _number: os.terminal_size((60, 24)))
    lines = for_terminal(sentence).split("\n")
    assert max(map(len, lines)) <= 60
    assert " ".join(line.strip() for line in lines) == sentence
    assert any(line.strip().startswith("`vramtui estimate some-rather-long/name --hub`") for line in lines)
    assert for_terminal("vramtui: short\n  a line of its own") == "vramtui: short\n  a line of its own"
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((0, 0)))
    assert for_terminal(sentence) == sentence  # a serial line says no width


@pytest.mark.parametrize("colour", [False, True])
def test_rows_of_every_colour_are_of_one_width(capsys: pytest.CaptureFixture[str], *, colour: bool) -> None:
    categories = ("weights", "gradients", "optimizer", "activations", "temporaries")
    line = "/opt/conda/lib/python3.11/site-packages/transformers/models/llama/modeling_llama.py:134"
    held = tuple(
        LiveAllocation(bytes=1 << 28, category=name, module="0 (Linear)", operator="aten.mm", line=line, phase="step")
        for name in categories
    )
    print_largest(held, 80, Bars(colour=colour))
    rows = [re.sub(r"\x1b\[[\d;]*m", "", row) for row in capsys.readouterr().out.splitlines() if row.endswith(":134")]
    assert {len(row) for row in rows} == {80}
    assert len(rows) == len(categories)


def test_no_table_of_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    print_largest((), 80, Bars())
    assert capsys.readouterr().out == ""


NO_FILE_S_NAMES = [
    "9" * 300,
    "a/" + "9" * 300,
    "9" * 300 + ".json",
    "9" * 5000,
    "~nobody-of-that-name/x.toml",
    "~nobody-at-all",
]


@pytest.mark.parametrize("name", NO_FILE_S_NAMES)
@pytest.mark.parametrize("command", [("estimate",), ("fit",), ("presets", "show"), ("oom",)])
def test_a_name_that_no_file_can_have_is_told_in_a_sentence(command: tuple[str, ...], name: str) -> None:
    done = invoke(*command, name)
    assert done.exit_code == 2
    assert done.stderr.startswith("vramtui: ")
    assert isinstance(done.exception, SystemExit)


@pytest.mark.parametrize("words", [("help", "keys"), ("record", "--help"), ("--help",), ("--version",), ("-V",)])
def test_an_output_that_cannot_be_written_is_a_sentence(words: tuple[str, ...]) -> None:
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "vramtui", *words], stdout=full, stderr=subprocess.PIPE, check=False, text=True
        )
    assert (ended.returncode, ended.stderr) == (2, "vramtui: the output cannot be written: No space left on device\n")


@pytest.mark.parametrize("words", [(), ("ps", "--demo"), ("record", "--demo"), ("--demo",), ("estimate", "gpt2-124m")])
def test_a_clock_that_python_cannot_read_is_a_sentence(words: tuple[str, ...], tmp_path: Path) -> None:
    """As CPython has it beyond 2262, where `time.time` overflows; logging asks it as it is imported."""
    shifted = 'raise OverflowError("timestamp too large to convert to C _PyTime_t")'
    (tmp_path / "sitecustomize.py").write_text(f"import time\ndef shifted():\n    {shifted}\ntime.time = shifted\n")
    ended = subprocess.run(
        [sys.executable, "-m", "vramtui", *words],
        capture_output=True,
        check=False,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        timeout=60,
    )
    assert ended.returncode == 2
    assert ended.stderr == ("vramtui: this machine's clock is beyond the year 2262, which Python cannot tell: set it\n")


@pytest.mark.slow
@pytest.mark.parametrize("years", [1000, 8000])
def test_a_date_beyond_the_year_9999_is_shown(years: int, tmp_path: Path) -> None:
    """A clock that can be read and whose date no calendar of Python's has."""
    seconds = years * 31_557_600
    (tmp_path / "sitecustomize.py").write_text(f"import time\nnow = time.time\ntime.time = lambda: now() + {seconds}\n")
    for words in (("ps", "--demo"), ("history",), ("snapshot", "--demo")):
        ended = subprocess.run(
            [sys.executable, "-m", "vramtui", *words],
            capture_output=True,
            check=False,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)},
            timeout=60,
        )
        assert "Traceback" not in ended.stderr
        assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize(
    ("command", "setting"),
    [("estimate", "model.num_attention_heads=33"), ("fit", "num_attention_heads=33"), ("estimate", "hidden_size=4097")],
)
def test_a_setting_that_makes_no_model_is_to_blame_itself(command: str, setting: str) -> None:
    done = invoke(command, "llama-3.1-8b-full", "--gpu", "H100", "--set", setting)
    assert done.exit_code == 2
    assert done.stderr.startswith(f"vramtui: --set {setting}: model.num_attention_heads = ")
    assert ".toml" not in done.stderr


@pytest.mark.parametrize(("words", "said"), [((), ""), (("stopped in forward",), "vramtui: stopped in forward\n")])
def test_what_was_interrupted_may_say_it(words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left, exit_on_user_error():
        raise KeyboardInterrupt(*words)
    assert (left.value.code, capsys.readouterr().err) == (130, said)
