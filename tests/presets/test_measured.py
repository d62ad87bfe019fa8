from typing import Any

import msgspec
import pytest

from tests.examples import SMALL, a_run
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.estimate import Ledger
from vramtui.core.runs.run import Run
from vramtui.presets import parse_preset
from vramtui.presets.measured import with_measured

TEXT = f"""\
{SMALL.replace('"Small"', '"Small"   # ours')}[run.lora]
rank = 4
target_modules = ["q_proj"]
"""


def _run(**changes: Any) -> Run:
    workload = msgspec.json.decode(msgspec.json.encode(parse_preset(TEXT, "small").workload))
    run = a_run(
        ended_at=1_790_003_600.0,
        started_at=1_790_000_000.0,
        ending="exited",
        preset="small",
        workload=workload,
        observed=Ledger(allocated=10, reserved=20, process=30),
        peak_how="probe",
        versions={"torch": "2.9.0", "driver": "580.95"},
    )
    return msgspec.structs.replace(run, **changes)


WHERE = 'where = "NVIDIA H200 in gpu01, driver 580.95, torch 2.9.0, peaks by the probe, 2026-09-21"\n'


def test_a_table_is_added_or_replaced_but_not_from_a_run_of_other_values() -> None:
    after = with_measured(TEXT, _run())
    assert after == f"{TEXT}\n[measured]\nallocated = 10\nreserved = 20\nprocess = 30\n{WHERE}"
    assert parse_preset(after, "small").measured is not None
    stood = f'{TEXT}\n[measured] # by hand\nprocess = 1 # peak\nreserved = 9\nwhere = "at home"\n'
    after = with_measured(stood, _run(observed=Ledger(process=30), peak_how="sampled"))
    where = WHERE.replace("peaks by the probe", "peaks seen by sampling")
    assert after == f"{TEXT}\n[measured] # by hand\nprocess = 30 # peak\n{where}"
    with pytest.raises(UserError, match=r"^this run had run\.batch_size = 2 instead of 8$"):
        with_measured(TEXT.replace("batch_size = 2", "batch_size = 8"), _run())
    without = TEXT.split("[run.lora]", maxsplit=1)[0]
    with pytest.raises(UserError, match=r"^this run had run\.lora = a table instead of nothing$"):
        with_measured(without, _run())
    many = without.replace("hidden_size = 64", "hidden_size = 128").replace("batch_size = 2", "batch_size = 8")
    many = many.replace("num_hidden_layers = 2", "num_hidden_layers = 3")
    with pytest.raises(UserError, match=r"run\.batch_size = 2 instead of 8 and 1 more$"):
        with_measured(many, _run())
    other = TEXT.replace("batch_size = 2", "batch_size = 8")
    assert "process = 30" in with_measured(other, _run(), anyway=True)
    assert "process = 30" in with_measured(TEXT, _run(workload={}))
    with pytest.raises(UserError, match=r"the preset:1: name is 1"):
        with_measured(TEXT.replace('"Small"', "1"), _run())


@pytest.mark.parametrize(("changes", "reason"), [
    ({"observed": Ledger()}, "nothing was measured of this run"),
    ({"ended_at": None, "ending": "running"}, "still goes on: it may not have reached its peak"),
    ({"ending": "out_of_memory"}, "ran out of memory: it may not have reached its peak"),
    ({"ending": "killed"}, "broke off: it may not have reached its peak"),
])  # fmt: skip
def test_what_cannot_be_the_peak(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        with_measured(TEXT, _run(**changes))
