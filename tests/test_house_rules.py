import re
import subprocess
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:work|root|home)/")
PACKAGE_HOST = re.compile(
    r"(?:pypi|pythonhosted|npmjs|conda)\.(?:org|com)|https?://[^\s\"'<>]*/simple(?![\w-])|index[-_]url", re.IGNORECASE
)
SILENCED = re.compile(r"#\s*(?:noqa|type:\s*ignore)\b(.*)")
WITH_REASON = re.compile(r"(?:: [A-Z]+\d+(?:, ?[A-Z]+\d+)*|\[[\w, -]+\])\s+[-#] [\w`]")

OVER_A_SET = re.compile(r"parametrize\(\s*(?:\"[^\"]*\"|\([^)]*\)),\s*(?:\{[^{}:]+\}|set\(|frozenset\()")


@cache
def _texts() -> dict[Path, str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode or not listed.stdout:  # an unpacked sdist, which may lie in another checkout
        pytest.skip("not a git checkout, so there are no tracked files")
    texts = {}
    for path in filter(Path.is_file, (ROOT / name for name in listed.stdout.split("\0") if name)):
        with suppress(UnicodeDecodeError):
            texts[path] = path.read_bytes().decode()
    return texts


def _found(pattern: re.Pattern[str]) -> list[str]:
    """The lines in which it stands; a file that has it nowhere is not looked at line by line."""
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path, text in _texts().items()
        if pattern.search(text)
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def test_no_path_of_one_machine_no_package_host_and_tests_need_no_benchmarks() -> None:
    """A set has another order in each process: the workers would not have the same tests, and pytest-xdist ends."""
    assert [line for pattern in (MACHINE_PATH, PACKAGE_HOST, OVER_A_SET) for line in _found(pattern)] == []
    # What both need stands in `tests/`, above all in `tests/recorded`.
    named = re.compile(r"^\s*(?:from|import) benchmarks\b", re.MULTILINE)
    paths = {line.partition(":")[0] for line in _found(named)}
    assert {path for path in paths if path.startswith("tests/")} == set(OF_BENCHMARKS)


def test_a_silenced_check_and_a_late_import_say_why() -> None:
    silent = []
    for path, text in _texts().items():
        if path.suffix != ".py" or path == Path(__file__):
            continue
        where = path.relative_to(ROOT)
        silent += [f"{where}: {match[0]}" for match in SILENCED.finditer(text) if not WITH_REASON.match(match[1])]
    assert silent == []
    # Where a whole folder imports late, pyproject.toml has its reason once; elsewhere each says its own.
    leaning = _found(re.compile(r"PLC0415[^-#]*[-#] as (?:above|below|in|`)"))
    leaning += _found(re.compile(r"\\N\{"))  # compiled by unicodedata, whose import is late
    assert [line for line in leaning if line.startswith("vramtui/")] == []


# Tests of a command of `benchmarks` itself.
OF_BENCHMARKS = {
    "tests/test_public_scripts.py": "the list of public scripts, and what makes their data",
    "tests/estimators/test_torch_facts.py": "the questions that a release of PyTorch is asked",
}
