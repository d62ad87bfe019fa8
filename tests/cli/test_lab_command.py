"""`vramtui lab`: experiments predicted to the byte, and a stand-in for the card that they are measured on."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner, Result

from vramtui.cli.main import program
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import card
from vramtui.estimators.lab import formulas
from vramtui.estimators.lab import runner as running
from vramtui.estimators.lab.catalogue import EXPERIMENTS, Experiment, ExperimentRun
from vramtui.estimators.traced.process.interpreters import Interpreter

RUNNER = CliRunner()
H200 = running.MeasuredCard(name="NVIDIA H200", capability=(9, 0), total_memory=150109880320)
LINEAR = {
    "A100": [257024, 258048, 8778752, 17555456, 17039360, 0],
    "H200": [257024, 258048, 33813504, 67624960, 67108864, 0],
}
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("warm_traces")]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")


def run(*arguments: str) -> Result:
    return RUNNER.invoke(program(("lab", "config")), ["lab", *arguments])


def experiment(*arguments: str) -> dict[str, Any]:
    done = run(*arguments, "--predict-only", "--json")
    assert done.exit_code == 0, done.stderr
    read = json.loads(done.stdout)
    assert read["schema"] == 1
    (one,) = read["experiments"]
    found: dict[str, Any] = one
    return found


def allocated(one: dict[str, Any], title: str = "") -> dict[str, int]:
    return {row["label"]: row["predicted"]["allocated"] for row in one["rows"] if row["run"] == title}


@pytest.mark.parametrize("name", LINEAR)
def test_a_linear_layer_as_pytorch_has_it(name: str) -> None:
    one = experiment("linear", "--device", name)
    assert list(allocated(one).values()) == LINEAR[name]
    assert one["measured_on"] is None
    assert one["exact"] is None


@pytest.mark.parametrize("name", LINEAR)
def test_a_separate_workspace_is_a_mebibyte_for_each_thread_that_runs_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_CUBLASLT_UNIFIED_WORKSPACE", "0")
    one = experiment("linear", "--device", name)
    more = [0, 0, 1 << 20, 1 << 20, 1 << 20, 0]  # only forward adds a bias, which is what runs cuBLASLt
    assert list(allocated(one).values()) == [size + extra for size, extra in zip(LINEAR[name], more, strict=True)]


def test_what_is_freed_stays_reserved_until_empty_cache() -> None:
    rows = {row["label"]: row["predicted"] for row in experiment("cache")["rows"]}
    assert rows["50 MiB freed"]["reserved"] == rows["and 50 MiB"]["reserved"]
    assert rows["49 MiB again"]["reserved"] == rows["and 50 MiB"]["reserved"]
    assert rows["empty_cache"]["reserved"] == 2 << 20
    assert rows["1 KiB freed, empty_cache"]["reserved"] == 0


def test_bytes_of_each_dtype() -> None:
    widths = {label: size >> 20 for label, size in allocated(experiment("dtypes")).items()}
    assert widths == {
        "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "int64": 8, "int32": 4,
        "int16": 2, "int8": 1, "uint16": 2, "uint8": 1, "bool": 1, "complex64": 8,
    }  # fmt: skip


def test_tensors_take_whole_blocks() -> None:
    for label, size in allocated(experiment("blocks")).items():
        assert size == -(-int(label) // 512) * 512


def test_a_graph_keeps_each_factor_that_was_computed() -> None:
    held = allocated(experiment("autograd", "--device", "A100"))
    base, tensor = held["leaves and workspace"], 64 * 64 * 4
    # Beside the result: nothing, nothing, x * 2, and both x + 2 and the first product plus 3.
    assert {label: (size - base) // tensor - 1 for label, size in held.items() if size != base} == {
        "x @ w": 0,
        "x + w": 0,
        "(x * 2) @ w": 1,
        "(((x + 2) @ w1) + 3) * w2": 2,
    }


def test_training_keeps_intermediates_and_inference_does_not() -> None:
    one = experiment("mlp", "--device", "A100")
    training, inference = allocated(one, "training"), allocated(one, "inference_mode")
    output = 256 * 1024 * 4
    assert training["7 ReLU"] - training["1 ReLU"] == 3 * output
    assert inference["7 ReLU"] == inference["1 ReLU"]
    # Weights, one output and one workspace, in both.
    assert inference["7 ReLU"] == inference["model"] + output + 8519680


def test_a_layer_norm_spelled_out_keeps_more() -> None:
    one = experiment("layernorm")
    fused, manual = allocated(one, "nn.LayerNorm"), allocated(one, "spelled out")
    output, row = 256 * 1024 * 4, 256 * 4
    assert fused["forward"] - fused["input"] == output + 2 * row
    assert manual["forward"] - manual["input"] > 3 * output


def test_adams_moments_come_in_the_first_step() -> None:
    one = experiment("optimizer")
    sgd, adam = allocated(one, "SGD"), allocated(one, "Adam")
    assert sgd["step 0"] == sgd["backward 0"]
    moments = adam["step 0"] - adam["backward 0"]
    assert 2 * adam["model"] <= moments < 2 * adam["model"] + 16 * 512
    held = {row["label"]: row["predicted"] for row in one["rows"] if row["run"] == "Adam"}
    assert held["step 0"]["categories"]["optimizer"] == moments
    assert held["zero_grad 1"]["categories"]["gradients"] == 0
    assert all(sum(figures["categories"].values()) == figures["allocated"] for figures in held.values())


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_each_has_a_table_and_a_drawing(name: str) -> None:
    done = run(name, "--plot", "--predict-only", "--device", "A100")
    assert done.exit_code == 0, done.stderr
    table, _, drawing = done.stdout.partition("┌")
    if EXPERIMENTS[name].plot == "bars":
        rows = [line for line in table.splitlines() if line[-1:].isdigit() and "  " in line]
        bars = [line.partition("┤")[0] for line in drawing.splitlines() if "┤" in line]
        assert len(set(bars)) == len(bars) == len(rows)  # whole in a terminal of 24 lines
    for one in EXPERIMENTS[name].runs:
        by_formula = formulas.predicted(EXPERIMENTS[name], one, card("A100-80GB"))
        lines = table.partition(f"\n{one.title}\n")[2] if one.title else table
        for label, printed in one.printed.items():
            traced = re.search(rf"^{label} +([\d,]+) +[\d,]+ +([\d,]+)", lines, re.MULTILINE)
            assert traced is not None
            assert traced.groups() == (f"{printed:,}", f"{printed:,}")
            assert by_formula.get(label, printed) == printed
    assert EXPERIMENTS[name].title in done.stdout
    assert "┌" in done.stdout
    assert "\x1b" not in done.stdout
    assert "Not measured" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_without_a_name_they_are_listed() -> None:
    done = run()
    assert done.exit_code == 0
    assert all(one.title in done.stdout for one in EXPERIMENTS.values())
    read = json.loads(run("--json").stdout)
    assert [one["name"] for one in read["experiments"]] == list(EXPERIMENTS)


def test_a_misspelt_name_is_told() -> None:
    done = run("layernrom")
    assert done.exit_code == 2
    assert "there is no experiment 'layernrom' (did you mean layernorm?)" in done.stderr


def without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Python within reach has torch."""
    monkeypatch.setattr(
        "vramtui.estimators.traced.process.interpreters.interpreters",
        lambda *_: iter([Interpreter(path=Path("/opt/python"), why="in PATH", python="3.12.1")]),
    )


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_without_torch_formulas_answer_as_the_trace_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    traced = {(row["run"], row["label"]): row["predicted"]["allocated"] for row in experiment(name)["rows"]}
    without_torch(monkeypatch)
    done = run(name, "--json")
    if not formulas.formula_rows(EXPERIMENTS[name], card("H100")):
        assert done.exit_code == 2
        assert f"{name} has no formula, and no Python within reach has torch" in " ".join(done.stderr.split())
        return
    assert done.exit_code == 0, done.stderr
    (one,) = json.loads(done.stdout)["experiments"]
    assert one["torch"] is None
    assert {(row["run"], row["label"]): row["formula"] for row in one["rows"]} == traced


def test_without_torch_it_is_said_that_formulas_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    without_torch(monkeypatch)
    done = run("linear", "--device", "A100", "--plot")
    assert done.exit_code == 0, done.stderr
    assert re.search(r"^forward +8,778,752 +8,778,752$", done.stdout, re.MULTILINE)
    assert "By formula, not traced: no Python within reach has torch: /opt/python (in PATH)" in done.stdout
    assert "no drawing" in done.stdout
    everything = run("all")
    assert everything.exit_code == 0, everything.stderr
    assert everything.stdout.count("There is no formula for it.") == 3
    named = run("linear", "--python", "/nowhere")
    assert named.exit_code == 2
    assert "--python /nowhere" in named.stderr


class StandIn:
    """A card that measures what is predicted, but for `off` bytes of the last row."""

    def __init__(self, off: int = 0, measured_on: running.MeasuredCard | None = H200) -> None:
        self.off = off
        self.card = measured_on

    def __call__(
        self, experiment: Experiment, run: ExperimentRun, interpreter: Interpreter | None = None
    ) -> running.MeasuredRun | None:
        if self.card is None:
            return None
        *rows, last = running.predict(experiment, run, self.card.device, interpreter).rows
        last = msgspec.structs.replace(last, allocated=last.allocated - self.off)
        return running.MeasuredRun(
            facts=running.MeasuringHost(torch="2.13.0+cu130", card=self.card), rows=(*rows, last)
        )


def test_a_measurement_that_agrees_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "measure", StandIn())
    done = run("linear")
    assert done.exit_code == 0, done.stderr
    assert "Predicted for NVIDIA H200, compute capability 9.0" in done.stdout
    assert done.stdout.count("exact") == 6
    assert "Measured on NVIDIA H200 with torch 2.13.0+cu130: every figure agrees to the byte." in done.stdout


def test_a_measurement_that_differs_is_told_and_ends_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "measure", StandIn(off=512))
    done = run("linear")
    assert done.exit_code == 1
    assert "+512 allocated" in done.stdout
    assert "1 of 6 rows differ, the first at workspaces cleared." in done.stdout
    done = run("linear", "--json")
    assert done.exit_code == 1
    (one,) = json.loads(done.stdout)["experiments"]
    assert one["exact"] is False
    assert [row["difference"] for row in one["rows"]] == [0, 0, 0, 0, 0, 512]
    assert one["measured_on"]["card"]["name"] == "NVIDIA H200"


def test_a_card_of_another_capability_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "measure", StandIn(off=512))
    done = run("linear", "--device", "A100")
    assert done.exit_code == 0
    assert "Not measured" in done.stdout


def test_a_row_that_was_not_measured_is_no_agreement() -> None:
    class Short(StandIn):
        def __call__(
            self, experiment: Experiment, run: ExperimentRun, interpreter: Interpreter | None = None
        ) -> running.MeasuredRun | None:
            whole = super().__call__(experiment, run, interpreter)
            assert whole is not None
            return msgspec.structs.replace(whole, rows=whole.rows[:-1])

    outcome = running.perform(EXPERIMENTS["linear"], card("H200"), measurer=Short(), named=True)
    assert outcome.exact is False


def test_measuring_asks_pytorch_itself_for_a_card(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(running, "CARD_FILES", (str(tmp_path / "none"),))
    linear = EXPERIMENTS["linear"]
    assert running.measure(linear, linear.runs[0]) is None
    monkeypatch.setattr(running, "CARD_FILES", (str(tmp_path),))
    measured = running.measure(linear, linear.runs[0])
    assert measured is None or [row.label for row in measured.rows][-1] == "workspaces cleared"


def test_a_failure_on_the_card_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(running, "CARD_FILES", (str(tmp_path),))
    wrong = msgspec.structs.replace(EXPERIMENTS["linear"], module="nowhere")
    monkeypatch.setattr(running, "NATIVE", "vramtui.estimators.traced.experiments.nowhere")
    with pytest.raises(UserError, match=r"linear failed on the card: .*nowhere"):
        running.measure(wrong, wrong.runs[0])
