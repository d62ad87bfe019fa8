"""`vramtui estimate --over`: one table over the values of a setting."""

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from typer.testing import CliRunner

from vramtui.cli.main import program
from vramtui.core.schema.workload import Engine, Quantization


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VRAMTUI_CONFIG_DIR", str(tmp_path))


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(program(), ["estimate", *arguments])
    return result.exit_code, result.output


def rows(*arguments: str) -> list[dict[str, Any]]:
    code, output = run(*arguments, "--json")
    assert code == 0, output
    found: list[dict[str, Any]] = json.loads(output)["rows"]
    return found


def process(*arguments: str) -> int:
    code, output = run(*arguments, "--json")
    assert code == 0, output
    size: int = json.loads(output)["estimates"][0]["process"]
    return size


def test_every_quantisation_is_a_row_and_each_is_what_set_gives() -> None:
    found = {row["value"]: row for row in rows("llama-3.1-8b-infer", "--over", "run.quantization")}
    assert list(found) == ["none", *get_args(Quantization)]
    assert found["none"]["process"] == process("llama-3.1-8b-infer")
    assert found["nf4"]["process"] == process("llama-3.1-8b-infer", "--set", "run.quantization=nf4")
    assert found["q4_k_m"]["weights"] < found["q8_0"]["weights"] < found["none"]["weights"]
    refused = found.pop("mxfp4")  # is of experts, which this model has none of
    assert "this model has none" in refused["refused"]
    for row in found.values():
        assert row["weights"] + row["kv_cache"] + row["rest"] == row["process"]


def test_the_servers_beside_each_other() -> None:
    found = rows("llama-3.1-8b-serve", "--over", "run.engine", "--gpu", "H100")
    assert [row["value"] for row in found] == list(get_args(Engine))
    assert len({row["kv_cache"] for row in found}) == len(found)


def test_values_may_be_written() -> None:
    found = rows("gpt2-124m", "--over", "run.batch_size=1,8")
    assert [row["value"] for row in found] == ["1", "8"]
    assert found[0]["process"] < found[1]["process"]


def test_a_value_that_is_refused_says_why_beside_the_others() -> None:
    found = rows("llama-3.1-8b-serve", "--over", "run.kv_cache", "--set", "run.engine=sglang", "--gpu", "H100")
    refused = {row["value"]: row["refused"] for row in found if row["refused"] is not None}
    assert set(refused) == {"int8", "int4"}
    assert "SGLang keeps its cache in 16 bits or in fp8" in refused["int8"]


def test_the_table_says_what_fits() -> None:
    code, output = run("llama-3.1-8b-infer", "--over", "run.quantization=none,q4_k_m", "--memory", "12GiB")
    assert code == 0
    lines = output.splitlines()
    assert "Llama 3.1 8B · inference (llama-3.1-8b-infer) on" in lines[0]
    (plain,) = [line for line in lines if line.startswith("none")]
    (small,) = [line for line in lines if line.startswith("q4_k_m")]
    assert "✗" in plain
    assert "✓ fits" in small


@pytest.mark.parametrize(
    ("over", "sentence"),
    [
        ("run.batch_size", "write its values: --over run.batch_size=1,2,4"),
        ("run.bach", "is no setting of this preset that takes one of a few words"),
        ("run.batch_size=", "has to name 1 to 64 values"),
        ("run.batch_size=1,x", "run.batch_size"),
    ],
)
def test_what_is_wrong_is_said(over: str, sentence: str) -> None:
    code, output = run("gpt2-124m", "--over", over)
    assert code == 2
    assert sentence in " ".join(output.split())


def test_it_takes_no_method() -> None:
    code, output = run("gpt2-124m", "--over", "run.attention", "--method", "rules")
    assert code == 2
    assert "it takes no --method" in " ".join(output.split())
