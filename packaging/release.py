"""Walk through the checklist of a release: `python packaging/release.py`, in a clean checkout of what is released.

Each step prints one line; the first that fails ends the walk with its reason. `--quick` leaves out what takes minutes:
the tests of the unpacked sdist, the documentation and the links. Nothing is published: a tag does that, in CI.
"""

import argparse
import re
import subprocess
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import lock
import tomlkit

ROOT = Path(__file__).parent.parent
LINK = re.compile(r"https://[^\s)>\"'`]+[^\s)>\"'`.,:;]")
LONGEST_SECTION = 60  # lines of a version in CHANGELOG.md: what matters to users
Step = Callable[[str, Path], str | None]


def version() -> str:
    """What pyproject.toml says."""
    return str(tomlkit.parse((ROOT / "pyproject.toml").read_text())["project"]["version"])


def versions_agree(number: str, _: Path) -> str | None:
    """Every file that states the version states this one."""
    stated = {
        "vramtui/__init__.py": f'__version__ = "{number}"',
        "packaging/conda/recipe.yaml": f'version: "{number}"',
        "CITATION.cff": f"version: {number}",
    }
    wrong = [file for file, line in stated.items() if line not in (ROOT / file).read_text()]
    return f"{', '.join(wrong)}: not {number}" if wrong else None


def changelog_is_closed(number: str, _: Path) -> str | None:
    """The version has its date, and is short enough to be read."""
    text = (ROOT / "CHANGELOG.md").read_text()
    match = re.search(rf"^## {re.escape(number)} - \d{{4}}-\d\d-\d\d$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if match is None:
        return f"CHANGELOG.md has no line '## {number} - YYYY-MM-DD'"
    lines = len(match[1].strip().splitlines())
    return (
        f"{number} takes {lines} lines of CHANGELOG.md, {LONGEST_SECTION} at most" if lines > LONGEST_SECTION else None
    )


def checkout_is_clean(_: str, __: Path) -> str | None:
    """What is released is what is committed."""
    changed = _output("git", "status", "--porcelain")
    return f"not committed: {', '.join(changed.split()[1::2])}" if changed else None


def wheels_are_locked(_: str, __: Path) -> str | None:
    """The container's wheels are those of constraints.txt, each by its hash."""
    return lock.problem()


def wheels_build(number: str, folder: Path) -> str | None:
    """Both distributions as wheel and sdist, and the sdist of everything."""
    _run(sys.executable, "packaging/split.py", str(folder / "split"))
    for name in ("vramtui-core", "vramtui"):
        _run(sys.executable, "-m", "hatchling", "build", "-d", str(folder / "dist"), cwd=folder / "split" / name)
    _run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(folder / "source"))
    missing = [
        name for name in ("vramtui", "vramtui_core") if not list((folder / "dist").glob(f"{name}-{number}-*.whl"))
    ]
    return f"no wheel of {', '.join(missing)}" if missing else None


def sdist_passes_its_tests(_: str, folder: Path) -> str | None:
    """The fast tier, from the unpacked sdist."""
    (packed,) = (folder / "source").glob("*.tar.gz")
    with tarfile.open(packed) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    _run(sys.executable, "-m", "pytest", "-q", "-n", "2", "--fast", "--dist", "loadfile", "tests", cwd=unpacked)
    return None


def docs_build(_: str, __: Path) -> str | None:
    """Every page, with its links within the site."""
    _run("make", "docs")
    return None


def links_are_live(_: str, __: Path) -> str | None:
    """Every address in README and docs answers."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    links = sorted({link for page in pages for link in LINK.findall(page.read_text())})
    dead = [link for link in links if not _answers(link)]
    return f"{len(dead)} of {len(links)} do not answer: {' '.join(dead)}" if dead else None


QUICK: tuple[Step, ...] = (versions_agree, changelog_is_closed, checkout_is_clean, wheels_are_locked, wheels_build)
SLOW: tuple[Step, ...] = (sdist_passes_its_tests, docs_build, links_are_live)


def walk(steps: tuple[Step, ...]) -> int:
    """Take each step; the exit code."""
    number = version()
    with tempfile.TemporaryDirectory() as folder:
        for step in steps:
            name = step.__name__.replace("_", " ")
            try:
                wrong = step(number, Path(folder))
            except subprocess.CalledProcessError as error:
                wrong = f"{' '.join(map(str, error.cmd))} ended with {error.returncode}\n{error.output}"
            if wrong is not None:
                print(f"✗ {name}: {wrong}")
                return 1
            print(f"✓ {name}")
    print(f"{number} can be tagged: git tag v{number}")
    return 0


def _run(*command: str, cwd: Path = ROOT) -> None:
    subprocess.run(command, cwd=cwd, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def _output(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE).stdout


def _answers(link: str) -> bool:
    request = urllib.request.Request(link, method="HEAD", headers={"User-Agent": "vramtui release"})  # noqa: S310 - https alone
    try:
        with urllib.request.urlopen(request, timeout=20):  # noqa: S310 - as above
            return True
    except urllib.error.HTTPError as error:
        return error.code in (403, 405, 429)  # there, and not for a program
    except OSError:
        return False


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    arguments.add_argument("--quick", action="store_true", help="without what takes minutes")
    sys.exit(walk(QUICK if arguments.parse_args().quick else (*QUICK, *SLOW)))
