import re
from pathlib import Path

import pytest

from tests.faults.host import Fault, look
from tests.tables import rows

FAULTS: list[Fault] = rows(__file__, "fault")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: str(fault["name"]))
def test_what_a_person_sees(fault: Fault, tmp_path: Path) -> None:
    seen = look(fault, tmp_path)
    shown = "\n".join(seen.lines)
    assert seen.code == fault.get("exit"), shown
    wanted = {line: re.compile(re.escape(line).replace(r"\*", ".*")) for line in fault["seen"]}
    assert wanted
    assert [line for line, form in wanted.items() if not any(map(form.fullmatch, seen.lines))] == [], shown
    assert "Traceback" not in shown
    assert "\x1b" not in shown
