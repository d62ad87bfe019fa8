"""Compile the emulated card's libraries for wheels: `python packaging/driver.py TREE [MACHINE …] [--wheels FOLDER]`.

TREE is a source tree that holds `vramtui/dryrun/cuda`, as `packaging/split.py` makes one. For x86-64 and aarch64, or
those that are named, with the glibc of manylinux2014, the package `ziglang` compiles the libraries into the folder
`prebuilt/MACHINE-KEY` of it, where KEY is that of the sources: whoever installs a wheel with them needs
no compiler. `--wheels` builds a wheel for each machine, with only its libraries and its platform in the name (needs the
packages build and wheel). From an sdist `cc` compiles them at the first use.
"""

import argparse
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

GLIBC = "2.17"
PLATFORM = "manylinux2014"
MACHINES = ("x86_64", "aarch64")


def build_module(tree: Path) -> ModuleType:
    """`vramtui.dryrun.cuda.build` of the tree."""
    sys.path.insert(0, str(tree))
    found = importlib.util.find_spec("vramtui.dryrun.cuda.build")
    if found is None or found.loader is None:
        raise SystemExit(f"{tree} holds no vramtui/dryrun/cuda")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def compile_for(machine: str, build: ModuleType, prebuilt: Path) -> None:
    """Put that machine's libraries into `prebuilt`, without symbols for a debugger."""
    folder = prebuilt / f"{machine}-{build.source_key()}"
    folder.mkdir(parents=True)
    for library, parts in build.libraries().items():
        compiler = [sys.executable, "-m", "ziglang", "cc", "-target", f"{machine}-linux-gnu.{GLIBC}", "-s"]
        command = [*compiler, *build.FLAGS, f"-Wl,-soname,{library}", "-o", str(folder / library), *parts, "-ldl"]
        subprocess.run(command, cwd=build.SOURCES, check=True)
        print(f"{folder.name}/{library}: {(folder / library).stat().st_size:,} B")


def build_wheel(tree: Path, machine: str, into: Path) -> Path:
    """The wheel of what the tree holds now, in `into`, named after its machine."""
    into.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "build", "--wheel", "--outdir", str(into), str(tree)], check=True)
    (pure,) = into.glob("*-none-any.whl")
    retag = [sys.executable, "-m", "wheel", "tags", "--remove", "--platform-tag", f"{PLATFORM}_{machine}", str(pure)]
    subprocess.run(retag, check=True)
    (wheel,) = into.glob(f"*-{PLATFORM}_{machine}.whl")
    return wheel


def main() -> None:
    """Compile for each machine."""
    asked = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    asked.add_argument("tree", type=Path)
    asked.add_argument("machines", nargs="*", default=MACHINES)
    asked.add_argument("--wheels", type=Path)
    options = asked.parse_args()
    tree = options.tree.resolve()
    build = build_module(tree)
    prebuilt = build.SOURCES.with_name("prebuilt")
    shutil.rmtree(prebuilt, ignore_errors=True)
    for machine in options.machines:
        compile_for(machine, build, prebuilt)
        if options.wheels is not None:
            print(build_wheel(tree, machine, options.wheels.resolve()))
            shutil.rmtree(prebuilt)


if __name__ == "__main__":
    main()
