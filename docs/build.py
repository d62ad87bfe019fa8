"""Put the site's pages together in build/docs: those of this folder, and those made from the code. `make docs`."""

import inspect
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

import vramtui
from vramtui.api import FitReport, JobEstimate, ObservedRun, schemas
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import DEFAULT_CARD, card
from vramtui.core.estimate.estimate import CATEGORIES, TITLES, Line, Part
from vramtui.estimators.analytic import ANALYTIC
from vramtui.presets import PresetLibrary

HERE = Path(__file__).parent
ROOT = HERE.parent
PAGES = ROOT / "build" / "docs"


def parts() -> str:
    """Every part that the bundled presets have, with one example of its arithmetic, and its source and lifetime."""
    found: dict[str, tuple[str, Part]] = {}
    for file in PresetLibrary(user_folder=ROOT / "build" / "none").all():
        try:
            estimate = ANALYTIC.estimate(file.preset.workload, card(DEFAULT_CARD))
        except UserError:
            continue  # known by a rule of its own, or by running it
        for part in estimate.parts:
            found.setdefault(part.name, (file.key, part))
    lines = ["## Parts and their formulas", "", "Made from the estimates of the bundled presets."]
    lines_of: tuple[Line, ...] = (*CATEGORIES, "cached", "context", "other")
    for line in lines_of:
        rows = list(_rows(found, line))
        if rows:
            lines += [
                "",
                f"### {TITLES[line]}",
                "",
                "| part | for example | source | held |",
                "|---|---|---|---|",
                *rows,
            ]
    return "\n".join(lines) + "\n"


def _rows(found: dict[str, tuple[str, Part]], line: Line) -> Iterator[str]:
    for name, (preset, part) in sorted(found.items()):
        if part.line == line:
            formula = part.formula if len(part.formula) < 240 else f"{part.formula[:240]} …"
            cells = (name, f"{formula} ({preset})", part.source, part.lifetime)
            yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def api() -> str:
    """The functions and what they answer, from their docstrings, behind the page's own examples."""
    lines = [(HERE / "ci-and-python.md").read_text(encoding="utf-8")]
    for name in ("estimate", "fit", "dry_run", "observe", "sample", "schema"):
        called = getattr(vramtui, name)
        lines += [f"## `vramtui.{name}`", "", "```python", _signature(name, called), "```", ""]
        lines += [*_markdown(called), ""]
    for kind in (JobEstimate, FitReport, ObservedRun):
        lines += [f"## `{kind.__name__}`", "", *_markdown(kind), ""]
        for name, member in vars(kind).items():
            told = inspect.getdoc(member)
            if not name.startswith("_") and told and isinstance(member, property | type(api)):
                lines.append(f"- `{name}`: {' '.join(told.split())}")
        lines.append("")
    return "\n".join(lines)


def _signature(name: str, called: Callable[..., object]) -> str:
    """An argument a line."""
    signature = inspect.signature(called)
    arguments = [f"    {argument}," for argument in map(str, signature.parameters.values())]
    keyword = [index for index, kind in enumerate(signature.parameters.values()) if kind.kind is kind.KEYWORD_ONLY]
    if keyword:
        arguments.insert(keyword[0], "    *,")
    return "\n".join((f"{name}(", *arguments, f") -> {signature.return_annotation.__name__}"))


def _markdown(documented: object) -> Iterator[str]:
    """A docstring: its arguments, attributes and errors as lists, its examples as code."""
    for block in inspect.cleandoc(getattr(documented, "__doc__", None) or "").split("\n\n"):
        title, _, rest = block.partition("\n")
        if title in ("Args:", "Attributes:", "Raises:", "Returns:"):
            yield from (f"**{title}**", "")
            for line in inspect.cleandoc(rest).splitlines():
                name, _, told = line.partition(": ")
                yield f"    {line.strip()}" if line.startswith(" ") else f"- `{name}`: {told}"
        elif block.startswith(">>>"):
            yield from ("```pycon", block, "```")
        else:
            yield block
        yield ""


def formats() -> str:
    """The files that are read and written, with their schemas."""
    lines = [
        "## File formats",
        "",
        "`vramtui.schema(NAME)` returns the JSON Schema (draft 2020-12) of each.",
        "A document's `schema` is the number of its form: within it keys are only added.",
        "",
        "| name | what it is |",
        "|---|---|",
    ]
    for name in schemas.SCHEMAS:
        parts = schemas.schema(name)["$defs"]
        about = (parts[title]["description"] for title in schemas.SCHEMAS[name].split())
        text = "<br>".join(" ".join(one.split("\n\n")[0].split()) for one in about)
        file = f"{name.replace(' ', '-')}.schema.json"
        schema = msgspec.json.encode(schemas.schema(name))
        (PAGES / file).write_bytes(msgspec.json.format(schema, indent=2) + b"\n")
        lines.append(f"| [`{name}`]({file}) | {text} |")
    return "\n".join(lines) + "\n"


def how_it_works() -> str:
    """The page, then all parts with their formulas and all file formats."""
    return "\n".join(((HERE / "how-it-works.md").read_text(encoding="utf-8"), parts(), formats()))


def changelog() -> str:
    """The repository's changelog."""
    return (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def main() -> None:
    """Write all pages."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(HERE, PAGES, ignore=shutil.ignore_patterns("*.py", "__pycache__", "decisions", "articles.md"))
    (PAGES / "screenshots").mkdir()
    for picture in (ROOT / "screenshots").glob("*-dark.png"):
        shutil.copy(picture, PAGES / "screenshots")
    for name, page in (("how-it-works", how_it_works), ("ci-and-python", api), ("changelog", changelog)):
        (PAGES / f"{name}.md").write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
