"""Says which installed packages have known weaknesses.

python packaging/audit.py < found.json          what pip-audit's JSON says
python packaging/audit.py --advisories FOLDER   what a checkout of github.com/pypa/advisory-database says of what is
                                                installed beside this Python; no network is needed

pip-audit ends with 0 also where its index knew none of the packages, as behind a mirror. That is no audit, and here it
is a failure.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import yaml
from pip._vendor.packaging.utils import canonicalize_name
from pip._vendor.packaging.version import Version

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
    lines.append(f"{len(known)} of {len(found)} packages were looked up; {len(weak)} have known weaknesses")
    if not known:
        lines.append(
            "nothing was audited: pip-audit's index (PyPI, or OSV with -s osv) cannot be reached from here; where there"
            " is no way to it: make audit ADVISORIES=a checkout of github.com/pypa/advisory-database"
        )
    return int(bool(weak) or not known), lines


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
    folder = parser.parse_args().advisories
    found, newest = by_advisories(installed(), folder) if folder else (json.load(sys.stdin)["dependencies"], "")
    code, lines = verdict(found)
    sys.stdout.writelines(f"{line}\n" for line in lines)
    if newest:
        sys.stdout.write(f"by advisories up to {newest}: what was found later is not among them\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
