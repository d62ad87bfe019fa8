"""What is made of the lines that read computed values: whether the way of the job may hang on them."""

import json
import os
from pathlib import Path

import pytest

from vramtui.dryrun.reads import leads_on, may_decide, read_places
from vramtui.dryrun.values import COMPARED, SIZED

SHOWN = (
    "writer.add_scalar('loss', loss.norm(), 3)",
    "log(f'{loss:.3f}')",
    "wandb.log({'loss': loss.item(), 'step': step})",
    "total = loss.item() if total is None else total + loss.item()\nprint(total)",
    "def step():\n    return loss, {'l1': loss.item()}",
    "meter.update(loss.item(), images.size(0))",
    "answers = x.argmax(1).cpu()\nscore = accuracy(answers, labels)",
    "if loss.item() > 3:\n    wrong += 1\n    print(wrong)",
    "lost = loss.item()\nscheduler.step(lost)\nlost = perplexity(lost)",
    "correct += (answers == labels).sum().item()\nlogger.info(correct / total)\nplt.plot(np.average([correct]))",
    "if torch.isnan(loss.detach()).item():\n    stop()",
    "lost = loss.item()\nif not math.isfinite(lost):\n    sys.exit(1)\nlog(lost)",
    "def train():\n    net.train()\n    return float(loss)\nloss = train()\nprint(loss)",
    (
        "def test():\n    accs = []\n    accs.append(int(right.sum()) / 9)\n    return accs\na, b = test()\nbest = 0\n"
        "if a > best:\n    best = a\n    print(b)\n    torch.save(net.state_dict(), 'net')"
    ),
    "total += loss.item()\nmean = torch.tensor(total)\ndist.all_reduce(mean)\nlog(mean.item())",
    "class Meter:\n    def __str__(self):\n        return str(self.loss)",
    "def a(t):\n    return str(chr(t.item()))",
)
DECIDING = (
    "if loss.item() > 3:\n    stop()",
    "while loss > 3:\n    step()",
    "kept = scores[scores > 0]",
    "lost = loss.item()\nif math.isfinite(lost) and lost < 3:\n    step()",
    "losses.append(loss.item())\nfor one in losses:\n    step()",
    "writer.add_scalar('loss', loss[mask].mean())",
    "def evaluate():\n    lost[k] = loss.item()\n    return lost",
    "def count():\n    return int(mask.sum())",
    "self.best = loss.item()",
    "rows = int(lengths.max())\nout = x[:rows]",
    "rows = lengths.max().item()\nnext_ = list(range(rows))",
    "out = torch.zeros(int(lengths.max()), 4)",
    "grid = (x.max() / step).long().tolist()\nnet = Net(grid)",
    "def step():\n    return {'rows': rows.item()}\nn = torch.zeros(step()['rows'])",
    "def count():\n    return int(mask.sum())\nx = x[: count()]",
    "def count():\n    return int(mask.sum())\nn = count()\nout = torch.zeros(n)",
    "def count():\n    return int(mask.sum())\nwhile count():\n    step()",
    "def lose():\n    return loss.item()\ndef go():\n    return lose()\nif go() > 3:\n    step()",
    "def lose():\n    return loss.item()\nlost = lose()\nbest = 1 if lost < 3 else 2",
    "if loss.item() > 3:\n    rows = 4\nout = x[:rows]",
    "if loss.item() > 3:\n    net.rows = 4",
    "lost = loss.item()\nif lost < 3:\n    big = 1\nif big:\n    step()",
    "def lose():\n    return loss.item()\nuse(lose)\nlost = lose()",
    "class Net:\n    def lose(self):\n        return loss.item()\nlost = net.lose()",
    "def step():\n    return a if loss.item() > 3 else b\nout = step()",
    "this is no Python",
)


# What follows from a followed number `v` where it is compared, or made whole, in the first line.
IDLE = [
    "if v > 3:\n    print(v)", "if v > 3:\n    raise E", "a = max(kept)", "b = v > 3\nprint(b)", "assert v < 3",
    "self.m = min(self.m, v)\nif v > self.m:\n    a()", "def f(v): return f'{int(v)}'", "print(int(v), '%d' % v)",
]  # fmt: skip
LEADING = [
    "n = int(v)", "a(int(v))", "s = f'{int(v)}'", "if v > 3:\n    print(a(v))", "if v > 3:\n    kept.append(t)",
    "a(v > 3)", "b = t[v > 3]", "b = a() if v > 3 else c", "b = max(kept, key=k)", "while v > 3:\n    a()",
    "b = a(bisect(kept, v))", "n = 3 if v > 3 else 4\na(n)", "m = min(m, v)\nn = int(m)", "b = bool(max(kept))",
    "if v > 3: a(x)", "while True:\n    x = a(x)\n    if v > 3: break",
]  # fmt: skip


@pytest.mark.parametrize("text", IDLE + LEADING)
def test_what_follows_from_a_number_where_it_is_used(tmp_path: Path, text: str) -> None:
    (script := tmp_path / "train.py").write_text(text)
    assert leads_on(SIZED if "int(v)" in text else COMPARED, f"{script}:{3 if text.startswith('while T') else 1}") is (
        text in LEADING
    )


def line_of(text: str) -> int:
    """The line that reads."""
    words = ("item", "tolist", "argmax", "loss:", "str(", "scores", "int(", "loss >", "scalar", "this")
    return next(number for number, line in enumerate(text.splitlines(), 1) if any(word in line for word in words))


@pytest.mark.parametrize("text", SHOWN)
def test_what_is_only_shown_or_kept_decides_nothing(text: str) -> None:
    assert not may_decide(text, line_of(text))


@pytest.mark.parametrize("text", DECIDING)
def test_a_condition_a_size_and_what_leaves_the_function_may_decide(text: str) -> None:
    assert may_decide(text, line_of(text))


def test_places_of_all_processes_are_one_list_with_those_that_decide_first(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print(loss.item())\nif loss.item() > 3:\n    stop()\nscaler.step(optimizer)\n")
    rows = [[str(script), 1, "<module>", "", 4], [str(script), 2, "main", "", 1]]
    (tmp_path / "1.reads").write_text(json.dumps([rows, []]))
    (tmp_path / "2.reads").write_text(json.dumps([[*rows, [str(script), 4, "main", "amp/grad_scaler.py", 9]], []]))
    (tmp_path / "3.reads").write_text("no list")
    assert [(place.line, place.times, place.decides) for place in read_places(tmp_path)[0]] == [
        (2, 2, True),
        (4, 9, False),
        (1, 8, False),
    ]
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
    """As in a generated file: deeper than Python's own limit of recursion."""
    script = tmp_path / "train.py"
    script.write_text(f"x = {' + '.join(['a'] * 5000)}\nprint(loss.item())\n")
    (tmp_path / "1.reads").write_text(json.dumps([[[str(script), 2, "main", "", 1]], []]))
    assert [place.code for place in read_places(tmp_path)[0]] == ["print(loss.item())"]
