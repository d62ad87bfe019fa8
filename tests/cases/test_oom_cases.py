"""Out-of-memory messages of public reports, with what is true of each.

One TOML file a case: its source, the situation, the message, the true cause ("" if nothing failed), words that the
answer must have, and words that would be wrong.
"""

from pathlib import Path
from typing import Any

from vramtui.core.base import toml
from vramtui.core.base.errors import UserError
from vramtui.core.observation.oom.advice import WAYS, sentences_of, ways_of
from vramtui.core.observation.oom.read import read_oom

FOLDER = Path(__file__).parent / "oom"
CASES = {path.stem: toml.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.toml"))}
KNOWN_WRONG: dict[str, str] = {}  # what is wrong in an answer today, with the reason; the list may only shrink


def faults(case: dict[str, Any]) -> list[str]:
    try:
        report = read_oom(case["text"])
    except UserError as error:
        answer, cause, program = str(error), "", ""
    else:
        answer, cause, program = "\n".join(sentences_of(report)), report.cause, report.program
        assert len(ways_of(report)) <= WAYS
    found = [f"cause {cause!r}, not {case['cause']!r}"] if cause != case["cause"] else []
    if case.get("program", program) != program:
        found.append(f"program {program!r}, not {case['program']!r}")
    found += [f"lacks {word!r}" for word in case.get("must", []) if word not in answer]
    found += [f"has {word!r}" for word in case.get("never", []) if word in answer]
    return [f"{', '.join(found)}\n{answer}"] if found else []


def test_each_message_is_explained() -> None:
    off = {name: found for name, case in CASES.items() if (found := faults(case))}
    assert {name: found for name, found in off.items() if name not in KNOWN_WRONG} == {}
    assert len(CASES) >= 60
    assert len({case.get("program", "PyTorch") for case in CASES.values()}) >= 12
    assert sorted(off) == sorted(KNOWN_WRONG)
    assert len(off) <= len(CASES) // 10
