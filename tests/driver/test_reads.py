"""What is made of the lines that read computed values: whether the way of the job may hang on them."""

import json
import os
from pathlib import Path

import pytest

from tests.tables import rows
from vramtui.dryrun.reads import leads_on, may_decide, read_places
from vramtui.dryrun.values import COMPARED, SIZED
from vramtui.probe.reads import CALLED

SHOWN, DECIDING, IDLE, LEADING = (rows(__file__, name) for name in ("shown", "deciding", "idle", "leading"))


@pytest.mark.parametrize("text", IDLE + LEADING)
def test_what_follows_from_a_number_where_it_is_used(tmp_path: Path, text: str) -> None:
    (script := tmp_path / "train.py").write_text(text)
    assert leads_on(SIZED if "int(v)" in text else COMPARED, f"{script}:{3 if text.startswith('while T') else 1}") is (
        text in LEADING
    )


def line_of(text: str) -> int:
    """The line that reads."""
    words = ("item", "tolist", "numpy()", "argmax", "loss:", "str(", "scores", "int(", "loss >", "scalar", "this")
    return next(number for number, line in enumerate(text.splitlines(), 1) if any(word in line for word in words))


@pytest.mark.parametrize("text", SHOWN)
def test_what_is_only_shown_or_kept_decides_nothing(text: str) -> None:
    assert not may_decide(text, line_of(text))


@pytest.mark.parametrize("text", DECIDING)
def test_a_condition_a_size_and_what_leaves_the_function_may_decide(text: str) -> None:
    assert may_decide(text, line_of(text))


def test_what_a_function_returns_is_followed_to_the_lines_that_called_it(tmp_path: Path) -> None:
    texts = {
        "score.py": "def score(x):\n    return (x.cpu().numpy() == 3).mean()\n",
        "shown.py": "kept = []\nkept.append(score(x))\nprint(kept)\n",
        "sized.py": "rows = score(x)\ny = torch.zeros(int(rows))\n",
        "kept.py": "from keep import *\nbest = score(x)\nif best > 0:\n    keep(net)\n",  # it only saves
        "copied.py": "from keep import copied\nbest = score(x)\nif best > 0:\n    copied(net)\n",
        "keep.py": "def keep(n):\n    torch.save(n, 'a')\ndef copied(n):\n    return deepcopy(n)\n",
    }
    paths = {name: str(tmp_path / name) for name in texts}
    for name, text in texts.items():
        Path(paths[name]).write_text(text)
    ends = {("shown.py:2",): False, ("sized.py:1",): True, ("shown.py:2", "sized.py:1"): True}
    for ways, expected in (ends | {("kept.py:2",): False, ("copied.py:2",): True}).items():
        reads = [[paths["score.py"], 2, "score", "", 4]]
        reads += [[paths["score.py"], 2, "", f"{tmp_path}/{way}{CALLED}", 1] for way in ways]
        (tmp_path / "1.reads").write_text(json.dumps([reads, []]))
        assert [place.decides for place in read_places(tmp_path)[0]] == [expected]
    (tmp_path / "1.reads").write_text(json.dumps([[*reads[:1], [paths["score.py"], 2, "", f"?:0{CALLED}", 1]], []]))
    assert [place.decides for place in read_places(tmp_path)[0]] == [True]  # it is not known who called


def test_places_of_all_processes_are_one_list_with_those_that_decide_first(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print(loss.item())\nif loss.item() > 3:\n    stop()\nscaler.step(optimizer)\n")
    rows = [[str(script), 1, "<module>", "", 4], [str(script), 2, "main", "", 1]]
    (tmp_path / "1.reads").write_text(json.dumps([rows, []]))
    (tmp_path / "2.reads").write_text(json.dumps([[*rows, [str(script), 4, "main", "amp/grad_scaler.py", 9]], []]))
    (tmp_path / "3.reads").write_text("no list")
    found = [(place.line, place.times, place.decides) for place in read_places(tmp_path)[0]]
    assert found == [(2, 2, True), (4, 9, False), (1, 8, False)]
    assert read_places(tmp_path)[0][0].words == "train.py:2 in main, 2 times: if loss.item() > 3:"


@pytest.mark.parametrize(
    ("path", "function", "inside"),
    [
        ("train.py", "<module>", "storage.py"), ("train.py", "save", "serialization.py"),
        ("train.py", "load", "nn/modules/module.py"), ("safetensors/torch.py", "_to_ndarray", ""),
        ("safetensors/torch.py", "_tobytes", ""), ("runtime/utils.py", "is_invalid_grad_norm", ""),
        ("transformers/trainer.py", "_save_optimizer_and_scheduler", "storage.py"),
        ("-packages/tensorboardX/x2num.py", "prepare_pytorch", ""),
    ],
)  # fmt: skip
def test_a_checkpoint_that_is_written_decides_nothing(tmp_path: Path, path: str, function: str, inside: str) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("torch.save(model.state_dict(), path)\n")
    (tmp_path / "1.reads").write_text(json.dumps([[[str(file), 1, function, inside, 84]], []]))
    assert [place.decides for place in read_places(tmp_path)[0]] == [False]


def test_what_a_job_left_in_the_place_of_its_reads_is_passed_over(tmp_path: Path) -> None:
    """It may write there, and name any file as one of its own."""
    os.mkfifo(tmp_path / "1.reads")
    (tmp_path / "2.reads").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe.py")
    files = ["/dev/zero", str(tmp_path / "pipe.py"), str(tmp_path), "a\0b", "n" * 5000, "../" * 3000]
    (tmp_path / "3.reads").write_text(json.dumps([[[file, 1, "main", "", 1] for file in files], []]))
    places = read_places(tmp_path)[0]
    assert {place.path for place in places} == set(files)
    assert {place.code for place in places} <= {"?"}


def test_a_sum_of_thousands_of_terms_is_read(tmp_path: Path) -> None:
    script = tmp_path / "train.py"  # as in a generated file, deeper than Python's own limit of recursion
    script.write_text(f"x = {' + '.join(['a'] * 5000)}\nprint(loss.item())\n")
    (tmp_path / "1.reads").write_text(json.dumps([[[str(script), 2, "main", "", 1]], []]))
    assert [place.code for place in read_places(tmp_path)[0]] == ["print(loss.item())"]
