"""What cannot be or is not modelled is refused in one sentence, by the estimate and on the command line."""

from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from tests.golden_workloads import model as named
from tests.tables import for_each, rows
from vramtui.cli.main import program
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import card
from vramtui.core.schema.workload import Parallel, Run, Workload
from vramtui.estimators.analytic import ANALYTIC

Table = dict[str, Any]
SIMPLE = {"kind": "infer"}


@for_each(rows(__file__, "cases"))
def test_it_is_one_sentence(
    model: str | Table, changes: Table, run: Table, parallel: Table, gpu: str, said: str
) -> None:
    table = named(model) if isinstance(model, str) else msgspec.convert({"model": model, "run": SIMPLE}, Workload).model
    fields = {key: tuple(value) if isinstance(value, list) else value for key, value in changes.items()}
    changed = {key: None if value == "none" else value for key, value in fields.items()}
    workload = Workload(
        model=msgspec.structs.replace(table, **changed),
        run=msgspec.convert({"kind": "infer"} | run, Run),
        parallel=msgspec.convert(parallel, Parallel) if parallel else None,
    )
    with pytest.raises(UserError) as refused:
        ANALYTIC.estimate(workload, card(gpu or "H100"))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@for_each(
    [
        ("llama-3.1-8b-full", ["parallel.zero_stage=4"], "parallel.zero_stage is 4; it must be at most 3"),
        ("llama-3.1-8b-infer", ["parallel.tensr=2"], "(did you mean tensor?)"),
        (
            "llama-3.1-8b-serve",
            ["parallel.data=2", "parallel.expert=2"],
            "parallel.expert = 2: the model has no experts",
        ),
    ]
)
def test_contradictions_end_with_2(preset: str, settings: list[str], sentence: str) -> None:
    chosen = [part for setting in settings for part in ("--set", setting)]
    done = CliRunner().invoke(program(["estimate"]), ["estimate", preset, *chosen])
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert sentence in done.stderr
