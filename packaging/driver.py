"""Compile the emulated card's libraries for wheels: `python packaging/driver.py TREE` (needs the package ziglang).

TREE is a source tree that holds `vramtui/driver`, as `packaging/split.py` makes one. For x86-64 and aarch64, with the
glibc of manylinux2014, the libraries go to TREE/vramtui/driver/prebuilt/MACHINE-KEY, where KEY is that of the sources:
whoever installs such a wheel needs no compiler. A wheel of the tree is then one machine's: `python -m build --wheel
TREE`, `wheel tags --platform-tag manylinux2014_x86_64 WHEEL`. From an sdist `cc` compiles them at the first use.
"""

import argparse
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

GLIBC = "2.17"
MACHINES = ("x86_64", "aarch64")


def build_module(tree: Path) -> ModuleType:
    """`vramtui.driver.build` of the tree."""
    sys.path.insert(0, str(tree))
    found = importlib.util.find_spec("vramtui.driver.build")
    if found is None or found.loader is None:
        raise SystemExit(f"{tree} holds no vramtui/driver")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def main() -> None:
    """Compile for each machine."""
    asked = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    asked.add_argument("tree", type=Path)
    asked.add_argument("machines", nargs="*", default=MACHINES)
    options = asked.parse_args()
    build = build_module(options.tree.resolve())
    prebuilt = build.SOURCES.with_name("prebuilt")
    shutil.rmtree(prebuilt, ignore_errors=True)
    for machine in options.machines:
        folder = prebuilt / f"{machine}-{build.source_key()}"
        folder.mkdir(parents=True)
        for library, parts in build.libraries().items():
            compiler = [sys.executable, "-m", "ziglang", "cc", "-target", f"{machine}-linux-gnu.{GLIBC}"]
            command = [*compiler, *build.FLAGS, f"-Wl,-soname,{library}", "-o", str(folder / library), *parts, "-ldl"]
            subprocess.run(command, cwd=build.SOURCES, check=True)
            print(f"{folder.relative_to(options.tree.resolve()) / library}: {(folder / library).stat().st_size:,} B")


if __name__ == "__main__":
    main()
