"""Says which installed packages have known weaknesses.

python packaging/audit.py --with FOLDER         what pip-audit says, which gets an environment of its own in FOLDER, so
                                                that it brings nothing along
python packaging/audit.py < found.json          what pip-audit's JSON says
python packaging/audit.py --advisories FOLDER   what a checkout of github.com/pypa/advisory-database says of what is
                                                installed beside this Python; no network is needed

pip-audit ends with 0 also where its index knew none of the packages, as behind a mirror. That is no audit, and here it
is a failure; so is an index that cannot be reached. Both end with one sentence.
"""

import argparse
import json
import re
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]  # it ships no types
from pip._vendor.packaging.utils import canonicalize_name
from pip._vendor.packaging.version import Version

ELSEWHERE = "where there is no way to it: make audit ADVISORIES=a checkout of github.com/pypa/advisory-database"
PIP = ("-m", "pip", "install", "--quiet", "--retries", "1", "--timeout", "20", "pip-audit")
AUDIT = ("-m", "pip_audit", "--progress-spinner", "off", "--format", "json", "--path")
MODIFIED = re.compile(r"""^modified: ["']?(\d{4}-\d\d-\d\d)""", re.MULTILINE)


def verdict(found: list[dict[str, Any]]) -> tuple[int, list[str]]:
    """The exit code, and the lines to print.

    Args:
        found: pip-audit's `dependencies`: `name`, `version` and `vulns`, or `skip_reason`.
    """
    known = [package for package in found if "skip_reason" not in package]
    weak = [package for package in known if package["vulns"]]
    lines = [
        f"{package['name']} {package['version']}: {weakness['id']} (mended in: {', '.join(weakness['fix_versions'])})"
        for package in weak
        for weakness in package["vulns"]
    ]
    if not known:
        index = "pip-audit's index (PyPI, or OSV with -s osv) cannot be reached from here"
        return 1, [f"nothing was audited: {index}; {ELSEWHERE}"]
    lines.append(f"{len(known)} of {len(found)} packages were looked up; {len(weak)} have known weaknesses")
    return int(bool(weak)), lines


def by_pip_audit(folder: Path) -> list[dict[str, Any]]:
    """What pip-audit says of what is installed beside this Python.

    Args:
        folder: where its own environment is made, unless it is there.

    Raises:
        SystemExit: pip-audit cannot be installed, or reaches no index; one sentence.
    """
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    done = subprocess.run([python, *PIP], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"nothing was audited: pip-audit cannot be installed ({last_line(done.stderr)}); {ELSEWHERE}")
    purelib = sysconfig.get_path("purelib")
    done = subprocess.run([python, *AUDIT, purelib], capture_output=True, text=True, check=False)
    try:
        found: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        raise SystemExit(
            f"nothing was audited: pip-audit reaches no index ({last_line(done.stderr)}); {ELSEWHERE}"
        ) from None
    return found


def last_line(said: str) -> str:
    """The line of what a program said that tells why it ended."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or ["it said nothing"])[-1][:200]


def installed() -> dict[str, str]:
    """The version of each package beside this Python."""
    return {canonicalize_name(found.metadata["Name"]): found.version for found in distributions()}


def by_advisories(packages: dict[str, str], folder: Path) -> tuple[list[dict[str, Any]], str]:
    """What pip-audit would say of `packages` by the advisories in `folder`, and when the newest of these was changed.

    Raises:
        SystemExit: no advisories are there.
    """
    newest = ""
    found: dict[str, dict[str, Any]] = {
        name: {"name": name, "version": version, "vulns": []} for name, version in sorted(packages.items())
    }
    for path in sorted((folder / "vulns").glob("*/*.yaml")):
        text = path.read_text(encoding="utf-8")
        newest = max(newest, *MODIFIED.findall(text), "")
        if path.parent.name in found:
            one = found[path.parent.name]
            one["vulns"] += weaknesses(yaml.safe_load(text), path.parent.name, Version(one["version"]))
    if not newest:
        raise SystemExit(f"{folder} holds no advisories: it has no files vulns/PACKAGE/ID.yaml")
    return list(found.values()), newest


def weaknesses(advisory: dict[str, Any], name: str, version: Version) -> Iterator[dict[str, Any]]:
    """The advisory, where it is about this version; OSV's rules: a listed version, or one from an `introduced` to
    before the next `fixed`.
    """
    for affected in () if "withdrawn" in advisory else advisory.get("affected", ()):
        if canonicalize_name(affected["package"]["name"]) != name:
            continue
        ranges = [one["events"] for one in affected.get("ranges", ()) if one["type"] == "ECOSYSTEM"]
        listed = version in {Version(one) for one in affected.get("versions", ()) if _is_version(one)}
        if listed or any(_within(version, events) for events in ranges):
            fixed = [event["fixed"] for events in ranges for event in events if "fixed" in event]
            yield {"id": advisory["id"], "fix_versions": fixed}


def _within(version: Version, events: list[dict[str, str]]) -> bool:
    is_in = False
    for event in events:
        if "introduced" in event and version >= Version(event["introduced"]):
            is_in = True
        if "fixed" in event and version >= Version(event["fixed"]):
            is_in = False
        if "last_affected" in event and version > Version(event["last_affected"]):
            is_in = False
    return is_in


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except ValueError:
        return False
    return True


def main() -> int:
    """Print and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--advisories", type=Path, help="a checkout of github.com/pypa/advisory-database")
    parser.add_argument("--with", type=Path, dest="environment", help="where pip-audit has or gets its environment")
    options = parser.parse_args()
    newest = ""
    if options.advisories:
        found, newest = by_advisories(installed(), options.advisories)
    elif options.environment:
        found = by_pip_audit(options.environment)
    else:
        found = json.load(sys.stdin)["dependencies"]
    code, lines = verdict(found)
    sys.stdout.writelines(f"{line}\n" for line in lines)
    if newest:
        sys.stdout.write(f"by advisories up to {newest}: what was found later is not among them\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
