"""What is made of the lines that read computed values: whether the way of the job may hang on them."""

import json
import os
from pathlib import Path

import pytest

from vramtui.dryrun.reads import leads_on, may_decide, read_places

SHOWN = [
    "wandb.log({'loss': loss.item(), 'step': step})",
    "print(round(float(loss), 5), file=out)",
    "if torch.isnan(loss.detach()).item():\n    stop()",
    "assert torch.isfinite(loss)",
]
DECIDING = [
    "if loss.item() > 3:\n    stop()",
    "writer.add_scalar('loss', loss[mask].mean())",
    "self.best = loss.item()",
    "meter.update(loss.item(), images.size(0))",
    "print(loss.item()); y = 1",
    "this is no Python",
]


@pytest.mark.parametrize("text", SHOWN + DECIDING)
def test_a_line_that_only_shows_what_it_reads_decides_nothing(tmp_path: Path, text: str) -> None:
    (script := tmp_path / "train.py").write_text(text)
    assert may_decide(text, 1) is leads_on(f"{script}:1") is (text in DECIDING)


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
