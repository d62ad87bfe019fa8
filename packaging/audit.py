"""Reads pip-audit's JSON from standard input and says what it found: python packaging/audit.py < found.json.

pip-audit ends with 0 also where its index knew none of the packages, as behind a mirror. That is no audit, and here it
is a failure.
"""

import json
import sys
from typing import Any


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
    lines.append(f"{len(known)} of {len(found)} packages are known to the index; {len(weak)} have known weaknesses")
    if not known:
        lines.append("nothing was audited: pip-audit's index (PyPI, or OSV with -s osv) cannot be reached from here")
    return int(bool(weak) or not known), lines


def main() -> int:
    """Print and judge."""
    code, lines = verdict(json.load(sys.stdin)["dependencies"])
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return code


if __name__ == "__main__":
    sys.exit(main())
