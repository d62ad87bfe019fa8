"""Make the two distributions of a release from this one tree: `python packaging/split.py FOLDER`.

`vramtui-core` is what a job's environment can hold: estimators, tracer, probe, API, pytest plugin and callbacks, with
msgspec alone. `vramtui` is the program, and needs the core of its own version. FOLDER/vramtui-core and FOLDER/vramtui
are source trees of their own; `python -m build FOLDER/vramtui-core` makes wheel and sdist of one.

A checkout itself stays one distribution with everything, so `pip install .` needs no index that has the core.
"""

import argparse
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tomlkit

ROOT = Path(__file__).parent.parent
OF_CORE = ("__init__.py", "__init__.pyi", "__main__.py", "py.typed")
CORE, PROGRAM = "vramtui-core", "vramtui"


def split(into: Path) -> None:
    """Write both source trees; what stands there already is replaced."""
    whole = tomlkit.parse((ROOT / "pyproject.toml").read_text()).unwrap()
    parts = whole["tool"]["vramtui"]["core"]
    for name in (CORE, PROGRAM):
        tree = into / name
        shutil.rmtree(tree, ignore_errors=True)
        package = tree / "vramtui"
        for path in _files(ROOT / "vramtui"):
            inside = path.relative_to(ROOT / "vramtui")
            if ((inside.parts[0] in parts["packages"]) or str(inside) in OF_CORE) == (name == CORE):
                (package / inside).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, package / inside)
        if name == CORE:
            shutil.copytree(ROOT / "presets", package / "_bundled_presets")
        for file in ("LICENSE", "README.md"):
            shutil.copy2(ROOT / file, tree / file)
        (tree / "pyproject.toml").write_text(tomlkit.dumps(_project(name, whole, parts)))


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)


def _project(name: str, whole: dict[str, Any], parts: dict[str, Any]) -> dict[str, Any]:
    """The pyproject.toml of one of the two, from that of the checkout."""
    project = {key: value for key, value in whole["project"].items() if key != "optional-dependencies"}
    extras = whole["project"]["optional-dependencies"]
    version = project["version"]
    if name == CORE:
        project.pop("scripts")
        project |= {"name": CORE, "description": parts["description"], "dependencies": parts["dependencies"]}
        project["optional-dependencies"] = {key: extras[key] for key in parts["extras"]} | parts[
            "optional-dependencies"
        ]
    else:
        project.pop("entry-points")
        project["dependencies"] = [f"{CORE}=={version}", *project["dependencies"]]
        ours = {key: value for key, value in extras.items() if key not in (*parts["extras"], "dev", "docs")}
        project["optional-dependencies"] = {key: [f"{CORE}[{key}]=={version}"] for key in parts["extras"]} | ours
    wheel = {"packages": ["vramtui"], "core-metadata-version": "2.4"}
    targets = {"wheel": wheel, "sdist": {"core-metadata-version": "2.4"}}
    return {
        "build-system": whole["build-system"],
        "project": project,
        "tool": {"hatch": {"build": {"targets": targets}}},
    }


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("folder", type=Path, help="where the two source trees are written")
    split(arguments.parse_args().folder)
