import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from tests.commands import invoke
from vramtui.core.base.errors import SourceFailed
from vramtui.core.estimate.devices import card, chosen_device
from vramtui.dryrun.child import input_ahead
from vramtui.dryrun.command import last_words

MIB = 1 << 20
CATEGORIES = {
    "weights", "gradients", "optimizer", "activations", "inputs", "workspaces", "temporaries", "kv_cache",
}  # fmt: skip
TRAIN = """
import argparse
import sys
import torch

def main(lr=1e-3, width=1024):
    net = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, 10)).cuda()
    optimizer = torch.optim.Adam(net.parameters(), lr=lr)
    while True:
        x = torch.randn(64, width, device="cuda")
        y = torch.zeros(64, dtype=torch.long, device="cuda")
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print("loss", loss.item())
        print("to standard error", file=sys.stderr)

def wrong():
    return main(width=argparse)

def needs(width):
    pass

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--width", type=int, default=512)
    found = parser.parse_args()
    main(found.lr, found.width)
"""
pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("VRAMTUI_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TRAIN, encoding="utf-8")
    return tmp_path


MAIN = ("train.py", "--lr", "1e-3", "--width", "1024")


def run(*words: str, gpu: str = "H100", options: tuple[str, ...] = ()) -> Result:
    asked = ("--gpu", gpu, "--engine", "fake", *options)
    return invoke("dry-run", *asked, *words)


def document(*words: str, gpu: str = "H100", options: tuple[str, ...] = ()) -> dict[str, Any]:
    done = run(*words, gpu=gpu, options=("--json", *options))
    read: dict[str, Any] = json.loads(done.stdout)
    assert (done.exit_code, read["exit_code"], read["engine"]) == (0, 0, "fake"), done.stderr
    (answer,) = read["gpus"]
    result: dict[str, Any] = answer["result"] | {"verdict": answer["verdict"]}
    return result


def write(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(textwrap.dedent(text), encoding="utf-8")


@pytest.mark.usefixtures("warm_children")
def test_the_document() -> None:
    read = document(*MAIN, gpu="A100", options=("--steps", "2"))
    assert read["torch"]
    assert (read["device"], read["capability"]) == ("A100-80GB", [8, 0])
    rows = read["timeline"]
    assert [(row["phase"], row["step"]) for row in rows] == [
        ("model", -1),
        ("optimizer", -1),
        *((phase, step) for step in (0, 1) for phase in ("input", "forward", "backward", "step", "zero_grad")),
    ]
    for row in rows:
        assert set(row) == {
            "phase", "step", "allocated", "reserved", "peak_allocated", "peak_reserved", "categories"
        }  # fmt: skip
        assert set(row["categories"]) == CATEGORIES
        assert sum(row["categories"].values()) == row["allocated"] <= row["peak_allocated"] <= row["peak_reserved"]
    # Both layers' weights and biases, each rounded to blocks of 512 bytes.
    assert rows[0]["allocated"] == 4 * 1024 * 1024 + 4096 + 40960 + 512
    assert read["peak_allocated"] == max(row["peak_allocated"] for row in rows)
    assert read["peak_reserved"] == max(row["peak_reserved"] for row in rows)
    assert read["process"] == read["peak_reserved"] + read["context"]
    assert read["peak_phase"] == "step"
    assert [one for one in read["warnings"] if not one.startswith("no namespace")] == []
    largest = read["largest"]
    assert len(largest) == 10
    assert [held["bytes"] for held in largest] == sorted((held["bytes"] for held in largest), reverse=True)
    assert any(held["module"] == "0 (Linear)" for held in largest)
    assert any(held["line"].endswith("train.py:12") for held in largest)


ASKS = "import torch\nwidth = int(input('How wide? '))\nx = torch.ones(width, 256, device='cuda')\n"
TRAINS = """net, load = torch.nn.Linear(256, 1, device='cuda'), torch.utils.data.DataLoader
for epoch in range(3):
    for batch in load(range(8)):
        net(x).mean().backward()
        torch.optim.SGD(net.parameters()).step()
    [x.repeat(len(batch), 1) for batch in load(range(64), 64)]
"""


def test_each_run_of_a_script_reads_what_is_piped_in(folder: Path) -> None:
    write(folder, "asks.py", ASKS + TRAINS)
    command = [sys.executable, "-m", "vramtui", "dry-run", "--gpu", "H100", "--engine=fake", "--json", "asks.py"]
    done = subprocess.run(command, input="4096\n", cwd=folder, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["gpus"][0]["result"]["peak_allocated"] > 64 * 4096 * 1024
    with (folder / "asks.py").open("rb") as script:
        script.seek(7)
        assert (input_ahead(script.fileno()), script.tell()) == ((ASKS + TRAINS)[7:].encode(), 7)


@pytest.mark.usefixtures("warm_children")
def test_a_script_that_asks_and_is_not_answered_is_told_how_to_answer(folder: Path) -> None:
    write(folder, "asks.py", ASKS)
    done = run("asks.py")
    assert done.exit_code == 2
    assert "asks.py:2 reads a line of standard input, which has ended; pipe the answer" in done.stderr
    assert "the code failed" not in done.stderr


@pytest.mark.usefixtures("warm_children")
def test_a_kernel_that_cannot_be_followed_is_refused_with_the_command_that_runs_it(folder: Path) -> None:
    write(folder, "kernel.py", "from torch.utils import cpp_extension as c\nc.load_inline('mine', '')\n")
    done = run("kernel.py")
    assert done.exit_code == 2
    assert re.search(
        r"It needs PyTorch's CUDA build: vramtui dry-run --engine cuda --gpu H100 \S*python3? kernel\.py", done.stderr
    )
    assert "--engine cuda" not in run("train.py").stderr  # the code's own fault


@pytest.mark.usefixtures("warm_children")
def test_a_script_that_misses_an_argument_says_so_itself() -> None:
    done = run("train.py")
    assert done.exit_code == 2
    assert "train.py: error: the following arguments are required: --lr" in done.stderr
    assert done.stderr.rstrip().endswith("vramtui: the job ended with 2, so it is unknown whether it fits")
    assert done.stdout == ""


@pytest.mark.usefixtures("warm_children")
def test_inference_ends_when_the_script_does(folder: Path) -> None:
    write(
        folder,
        "infer.py",
        """
        import torch
        net = torch.nn.Linear(1024, 1024).to("cuda", torch.bfloat16).eval()
        with torch.inference_mode():
            for _ in range(5):
                y = net(torch.ones(8, 1024, device="cuda", dtype=torch.bfloat16))
        print(y.shape)
        """,
    )
    read = document("infer.py", options=("--steps", "2"))
    assert [row["step"] for row in read["timeline"] if row["phase"] == "forward"] == [0, 1, 2, 3, 4]
    assert read["timeline"][-1]["categories"]["gradients"] == 0


@pytest.mark.usefixtures("warm_children")
def test_out_of_memory_on_a_small_card_is_a_no_with_the_allocators_figures() -> None:
    done = run(*MAIN, options=("--memory", "40MiB", "--json"))
    assert done.exit_code == 1
    read = json.loads(done.stdout)["gpus"][0]["result"]
    assert read["total_memory"] == 40 * MIB
    assert read["peak_reserved"] <= 40 * MIB
    assert "tried to allocate" in read["out_of_memory"]
    assert "40.00 MiB" in read["out_of_memory"]
    assert "out of memory in " in read["out_of_memory"]
    assert "train.py:" in read["out_of_memory"]


@pytest.mark.usefixtures("warm_children")
def test_a_script_that_does_not_fit_is_told_its_largest_batch(folder: Path) -> None:
    text = """
        import argparse, torch
        parser = argparse.ArgumentParser()
        parser.add_argument("--batch-size", type=int, default=16)
        batch = parser.parse_args().batch_size
        net = torch.nn.Linear(1024, 1024, device="cuda")
        for _ in range(3):
            net(torch.ones(batch * 1024, 1024, device="cuda")).sum().backward()
        """
    (folder / "sized.py").write_text(textwrap.dedent(text), encoding="utf-8")
    done = run("sized.py", options=("--memory", "860MiB"))
    assert done.exit_code == 1
    told = re.search(r"largest batch that fits: (\d+) \(--batch-size \1\); (\d+) does not\n", done.stdout)
    assert told is not None, done.stdout
    largest = int(told[1])
    assert int(told[2]) == largest + 1
    assert run("sized.py", "--batch-size", str(largest), options=("--memory", "860MiB", "--json")).exit_code == 0
    refused = run("sized.py", "--batch-size", str(largest + 1), options=("--memory", "860MiB", "--json"))
    assert refused.exit_code == 1
    assert refused.stderr.count("out of memory") <= 1
    assert json.loads(refused.stdout)["largest_batch"]["largest"] == largest


@pytest.mark.usefixtures("warm_children")
def test_an_error_of_the_code_is_shown_with_the_persons_own_lines_only(folder: Path) -> None:
    write(folder, "wrong.py", "import train\n\ntrain.wrong()\n")
    done = run("wrong.py")
    assert done.exit_code == 2
    assert "train.py:20 in wrong: return main(width=argparse)" in done.stderr
    assert "train.py:7 in main: net = torch.nn.Sequential(" in done.stderr
    assert "the code failed at train.py:7: TypeError" in done.stderr
    assert "site-packages" not in done.stderr
    assert "vramtui/estimators" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("tain.py",), "tain.py does not exist (did you mean train.py?)"),
        (("--gpu", "H20000", "train.py"), "no card called 'H20000' is known (did you mean H20"),
        (("--gpu", "0xH100", "train.py"), "--gpu 0xH100: 1 to 16 GPUs"),
        (("--memory", "much", "train.py"), "'much' is not a size"),
        (("no-such-program",), "no-such-program: no such program"),
        (("--batch-option", "--lot", "--memory", "40MiB", *MAIN), "the command has no such option with a number"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("warm_children")
def test_what_is_wrong_is_told_in_a_sentence(arguments: tuple[str, ...], said: str) -> None:
    done = run(*arguments)
    assert done.exit_code == 2, done.output
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.usefixtures("warm_children")
@pytest.mark.parametrize("width", [80, 120])
def test_for_people(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    done = run(*MAIN, gpu="H200", options=("--steps", "1"))
    assert done.exit_code == 0, done.stderr
    lines = done.stdout.splitlines()
    assert all(len(line) <= width for line in lines)
    assert lines[0].startswith("✓ fits H200: needs ")
    assert any(line.startswith("H200, compute capability 9.0") for line in lines)
    (backward,) = (line for line in lines if line.startswith("backward"))
    (forward,) = (line for line in lines if line.startswith("forward"))
    # 64 MiB of workspaces after backward, 32 after forward, on one scale.
    assert abs(backward.count("S") - 2 * forward.count("S")) <= 1
    assert "W" in forward
    assert "G" in backward
    assert "Peak allocated" in done.stdout
    assert "0 (Linear)" in done.stdout
    assert "train.py:12" in done.stdout


ENDLESS = "import os, pathlib, time\npathlib.Path('pid').write_text(str(os.getpid()))\nwhile True: time.sleep(1)\n"
STOPPED = r"vramtui: the trace was stopped while the model was made(, at endless\.py:\d)?\n"


@pytest.mark.parametrize(
    ("sign", "code", "said"), [(signal.SIGINT, 130, STOPPED), (signal.SIGKILL, -signal.SIGKILL, "")]
)
def test_the_code_ends_with_the_command(folder: Path, sign: signal.Signals, code: int, said: str) -> None:
    write(folder, "endless.py", ENDLESS)
    words = ("dry-run", "--gpu", "H100", "--engine", "fake", "--keep-files", "endless.py")
    command = [sys.executable, "-m", "vramtui", *words]
    started = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    written = folder / "pid"
    _wait_until(lambda: written.exists() and written.read_text(encoding="utf-8") != "")
    pid = int(written.read_text(encoding="utf-8"))
    started.send_signal(sign)
    _, error = started.communicate(timeout=120)
    assert started.returncode == code
    assert re.fullmatch(said, error)
    _wait_until(lambda: not _runs(pid))


def _wait_until(happened: Callable[[], bool]) -> None:
    for _ in range(2400):
        if happened():
            return
        time.sleep(0.05)
    pytest.fail("it never happened")


def _runs(pid: int) -> bool:
    """Whether the process is there and not merely waiting to be reaped by whoever adopted it."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_without_torch_it_says_how_to_get_it_and_the_rest_works(folder: Path) -> None:
    write(
        folder,
        "sitecustomize.py",
        """
        import sys

        class NoTorch:
            @staticmethod
            def find_spec(name, path=None, target=None):
                if name.partition(".")[0] in {"torch", "transformers"}:
                    raise ModuleNotFoundError(f"No module named {name!r}", name=name)

        sys.meta_path.insert(0, NoTorch)
        """,
    )
    environment = {**os.environ, "PYTHONPATH": str(folder)}

    def vramtui(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "vramtui", *arguments],
            env=environment, cwd=folder, capture_output=True, text=True, check=False,
        )  # fmt: skip

    done = vramtui("dry-run", "--gpu", "H100", "train.py")
    assert done.returncode == 2, done.stderr
    assert "no Python within reach has torch: " in done.stderr
    for others in (("estimate", "tiny-gpt"), ("presets", "list"), ("dry-run", "--help"), ("--version",)):
        done = vramtui(*others)
        assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("warm_children")
def test_the_verdict_counts_the_cuda_context() -> None:
    found = document(*MAIN)
    assert found["verdict"] == "fits"
    exact = run(*MAIN, options=("--memory", str(found["process"])))
    assert exact.exit_code == 0, exact.stderr
    assert exact.stdout.startswith("! tight on ")
    # What PyTorch reserves would still fit; with the context it does not.
    short = run(*MAIN, options=("--memory", str(found["process"] - 1)))
    assert short.exit_code == 1
    assert short.stdout.startswith("✗ does not fit ")
    assert found["peak_reserved"] < found["process"] - 1


@pytest.mark.usefixtures("warm_children")
def test_a_script_that_puts_nothing_on_the_gpu_does_not_fit_by_that(folder: Path) -> None:
    write(folder, "hello.py", "print('hello')")
    write(
        folder,
        "on_cpu.py",
        """
        import torch
        net = torch.nn.Linear(8, 8)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(3):
            net(torch.randn(2, 8)).sum().backward()
            optimizer.step()
        """,
    )
    for script in ("hello.py", "on_cpu.py"):
        done = run(script)
        assert done.exit_code == 2, "a check would pass for ever"
        assert f"{script} put nothing on the GPU" in done.stderr
        assert "fits" not in done.stdout


def test_what_needs_no_run_is_answered_at_once() -> None:
    assert chosen_device("24GiB", None).total_memory == 24 << 30
    assert chosen_device("T4", None) == card("T4")
    done = invoke("dry-run", "train.py", "--lr", "1", "--gpu", "4090")
    assert done.exit_code == 2
    assert "--gpu stands before the command: vramtui dry-run --gpu 4090 train.py --lr 1" in done.stderr
    done = invoke("trace", "train.py")
    assert done.exit_code == 2
    assert "Did you mean vramtui dry-run?" in done.stderr


COMPILED = "import torch\nnet = torch.compile(torch.nn.Linear(64, 64).cuda())\n"
SMALL = "import torch\none = torch.ones((), device='cuda')\na = one.expand(32, 32).to(torch.float8_e4m3fn)\n"
SMALL += "torch._scaled_mm(a, a.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)"


@pytest.mark.usefixtures("warm_children")
@pytest.mark.parametrize(
    ("text", "gpu", "said"),
    [
        (COMPILED, "GTX1080Ti", "torch.compile at job.py:2 does not start on this card: Triton needs"),
        (COMPILED, "V100", ""),
        (SMALL, "A100", "torch._scaled_mm at job.py:4 does not start on this card"),
        (SMALL, "L4", ""),
    ],
)
def test_what_a_card_has_no_code_for_is_refused(folder: Path, text: str, gpu: str, said: str) -> None:
    write(folder, "job.py", text)
    done = run("job.py", gpu=gpu)
    assert done.exit_code == (2 if said else 0), done.output
    assert said in done.stderr
    assert said or "does not start" not in done.stderr


RANK = "[rank1]: Traceback (most recent call last):\n[rank1]:   File 'a.py', line 1\n[rank1]: KeyError: 'text'\n"
FAILED = "E1129 20:06:19 torch/elastic/api.py:1002] failed (exitcode: 1) local_rank: 1 (pid: 5)\nTraceback\n  main()\n"
WARNED = "a.py:36: UserWarning: TypedStorage is deprecated.\n  img = storage(pic)\n"
TABLE = "torch.distributed.elastic.ChildFailedError: \n====\n  error_file: <N/A>\n  traceback : {}\n====\n"


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        (f"{RANK}{RANK.replace('1', '0').replace('text', 'x')}{FAILED}", "KeyError: 'text'"),
        (RANK + FAILED + TABLE.format("To enable traceback see"), "KeyError: 'text'"),
        (FAILED + TABLE.format("Traceback:\n    main()\n  a.B.OwnError: no b"), "a.B.OwnError: no b"),
        (f"{RANK}[rank1]:[W1129 20:07:05 P.cpp:1624] Warning: not destroyed\n", "KeyError: 'text'"),
        (f"{RANK}step\n" + "line\n" * 9 + "no data\n\n", "no data"),
        ("OSError: We couldn't connect to a hub\nCheck your connection.\n", "OSError: We couldn't connect to a hub"),
        ("ERROR: packages are missing\nFor CUDA 13:\npip install .[cu13]\n", "ERROR: packages are missing"),
        ("a.py: error: no --lr\n[1] [INFO] [launch.py:3] Killing subprocess 7\n", "a.py: error: no --lr"),
        (f"KeyError: 'a'\n{WARNED * 9}", "KeyError: 'a'"),  # of workers that load data
        (FAILED, FAILED.partition("\n")[0]),
        ("KeyError: 'a'\nERROR:    Application startup failed.\n", "KeyError: 'a'"),
        ("Usage: a\n╭─ Error ──╮\n│ No such  │\n│ option   │\n╰──────────╯\n", "No such option"),
    ],
)
def test_the_line_that_says_why_a_job_failed(printed: str, reason: str) -> None:
    assert last_words(printed)[1] == reason


@pytest.mark.usefixtures("warm_children")
def test_a_job_that_is_ended_early_says_so() -> None:
    for options in ((), ("--show-output",)):
        assert "note: ended after step 2: its first" in run(*MAIN, options=(*options, "--steps", "2")).stdout


@pytest.mark.usefixtures("warm_children")
def test_several_gpus_are_one_table_and_one_list() -> None:
    lines = run(*MAIN, gpu="4090,2xH100").stdout.partition("\nnote: ")[0].splitlines()
    assert [line.split()[0] for line in lines if line[:1] != "─"] == ["GPU", "RTX4090", "2xH100"]
    assert sum("✓ fits" in line for line in lines) == 2
    read = json.loads(run(*MAIN, gpu="4090,2xH100", options=("--json",)).stdout)
    assert [(one["gpu"], one["verdict"]) for one in read["gpus"]] == [("RTX4090", "fits"), ("2xH100", "fits")]


def test_without_a_gpu_it_names_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_source(**_: object) -> None:
        raise SourceFailed("no driver", "")

    monkeypatch.setattr("vramtui.cli.common.open_source.open_source", no_source)
    done = invoke("dry-run", "train.py", "--gpu", "0")
    assert done.exit_code == 3
    assert "--gpu has to name one: vramtui dry-run --gpu 4090 train.py --gpu 0" in done.stderr
