"""Every fault shows a person what the table says of it."""

from pathlib import Path

import pytest

from tests.faults.cases import FAULTS
from tests.faults.host import Fault, look
from tests.faults.table import blocks, stands, title

TABLE = blocks()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_what_a_person_sees(fault: Fault, tmp_path: Path) -> None:
    seen = look(fault, tmp_path)
    shown = "\n".join(seen.lines)
    assert title(fault, seen) in TABLE, shown
    wanted = TABLE[title(fault, seen)]
    assert wanted
    assert [line for line in wanted if not stands(line, seen)] == [], shown
    assert "Traceback" not in shown
    assert "\x1b" not in shown


def test_the_table_is_of_these_faults() -> None:
    assert len(FAULTS) >= 40
    assert [line.partition(" · ")[0] for line in TABLE] == [fault.name for fault in FAULTS]
