import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "vramtui"
PHRASES = re.compile(
    r"""
    \bcall(?:s|ed)?\s\w+\soff\b | \btakes?\sback\b | \blets?\sgo\b | \breckon | \bunsaid\b | \bkeys\sto\b
    | \bhas\sthe\skeys\b | \bholds?\swhat\b | \bsaid\sby\shand\b | \bby\shand\b | \bby\sitself\b | \bgoes\son\b
    | \b(?:is|are)\stold\b | \blearnt\b | \bby\sthe\sdead\b | \bnot\stell\b | \bas\sit\scame\b
    | \bas\sit\sis\b | \bnot\sthere\b | \bis\sticked\b | \bspace\sticks\b | \bTick\b | \bso\smany\b | \bSay\sthe\b
    | \bThe\sother\sorder\b | \bmore\sa\sbatch\b | \bless\sa\sbatch\b | \bonce\smore\b | \bcame\swith\sthe\sprogram\b
    | \blast\sgood\sone\b | \bstands\sthere\b | \bNothing\shere\scan\b | \bis\sforgotten\b | \bDraw\sit\stoo\b
    | \bbroke\soff\b | \bSeconds\sbetween\slooks\b | \bchosen\s(?:row|process|run)\b | \bnot\swhole\b
    """,
    re.VERBOSE,
)


def texts(path: Path) -> Iterator[tuple[int, str]]:
    if path.suffix == ".json":
        yield from enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        return
    tree = ast.parse(path.read_text(encoding="utf-8"))
    commands = {"command_of", "job_command"} if "cli" in path.parts else set()
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    hidden = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, owners)
        and isinstance(node.body[0], ast.Expr)
        and not any(ast.unparse(one).partition("(")[0] in commands for one in getattr(node, "decorator_list", ()))
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in hidden:
            yield node.lineno, node.value


@pytest.mark.parametrize("folder", ["app", "cli"])
def test_no_odd_wording_on_a_screen(folder: str) -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{line}: {text.strip()[:100]}"
        for path in sorted((PACKAGE / folder).rglob("*.*"))
        if path.suffix in {".json", ".py"}
        for line, text in texts(path)
        if PHRASES.search(text)
    ]
    assert not found, "\n".join(found)


# Names of classes, functions, methods and modules that stood for something the field has a word for.
FORMER = re.compile(
    r"""
    (?:^|_)
    (?: desk | actor | pursuit | told | recall | taping | listing | aside | leaving | tidying | office | pen | filing
      | hearing | looker | closely | crew | hurry | keeper | keeping | kept | unkept | learnt | watched | attending
      | turned | lever | rougher | dear | spoken | reckoned )
    (?:_|$)
    """,
    re.VERBOSE,
)
DEFINED = re.compile(r"^ *(?:async )?(?:def|class) (\w+)", re.MULTILINE)
# A function is named by what it does or gives, never by a bare participle.
PARTICIPLE = re.compile(
    r"""
    _? (?: said | made | found | known | asked | listed | described | named | given | told | kept | held | answered
         | tabulated | pictured | branched | taken | seen | shown | written | drawn | chosen | counted | handed_on
         | followed | done | read_on )
    """,
    re.VERBOSE,
)
# Names of variables, parameters, attributes and fields that say nothing of what they hold.
EMPTY = {"desk", "found", "hurry", "told", "made", "said", "kept", "held", "beside"}
# A docstring of one or two words, or one that only points at another or at its owner.
BARE_DOCSTRING = re.compile(
    r"""
    ^ [ ]+ \"{3} (?:
        \S+ (?: [ ] \S+ )? \.? \"{3} $
      | (?: As | The[ ]same | Its? | Of | Told | Said | That | By | For | From | With | To | On | Behind | Nothing
          | None | No | Only ) \b .*
    )
    """,
    re.MULTILINE | re.VERBOSE,
)
# Keys of what a person writes or a program reads, which stay what they are.
KEYS = {
    "core/observation/oom/report.py: held": "of `vramtui oom --json`",
    "core/schema/settings.py: held": "of [alerts] in config.toml",
}


def test_no_former_name_is_given_again_and_functions_are_verbs() -> None:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        defined = [path.stem, *DEFINED.findall(path.read_text(encoding="utf-8"))]
        words = (re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower() for name in defined)
        found += [f"{path.relative_to(PACKAGE)}: {name}" for name in words if FORMER.search(name)]
    assert not found, "\n".join(found)
    given = [name for path in sorted(PACKAGE.rglob("*.py")) for name in names(path)]
    assert sorted(given) == sorted(KEYS)


# Where a file has none of these, it need not be parsed.
LIKELY = re.compile(rf"\bdef\s(?:{PARTICIPLE.pattern})\b | \b_?(?:{'|'.join(sorted(EMPTY))})\b", re.VERBOSE)


def names(path: Path) -> Iterator[str]:
    text, file = path.read_text(encoding="utf-8"), path.relative_to(PACKAGE)
    for node in ast.walk(ast.parse(text)) if LIKELY.search(text) else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if PARTICIPLE.fullmatch(node.name) or node.name.removeprefix("_") in EMPTY:
                yield f"{file}: def {node.name}"
            continue
        name = ""
        if isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            name = node.id if isinstance(node, ast.Name) else node.attr
        if name.removeprefix("_") in EMPTY:
            yield f"{file}: {name}"


def test_docstrings_and_sentences_are_plain() -> None:
    bare = [
        f"{path.relative_to(PACKAGE)}: {docstring.strip()}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for docstring in BARE_DOCSTRING.findall(path.read_text(encoding="utf-8"))
    ]
    assert not bare, "\n".join(bare)
    root = PACKAGE.parent
    pages = [*root.glob("*.md"), *(root / "docs").glob("*.md"), *(root / "docs/decisions").glob("0*.md")]
    files = [*PACKAGE.rglob("*.py"), *(page for page in pages if page.name not in {"articles.md", "CHANGELOG.md"})]
    found = [
        f"{path.relative_to(root)}: {line.strip()}"
        for path in sorted(files)
        for line in path.read_text(encoding="utf-8").splitlines()
        if ARCHAIC.search(line)
    ]
    assert len(found) <= PLAIN, "\n".join(found)


# Patterns of WRITING.md: inverted and archaic English. What is left has a reason in its line ("there is no" is plain).
ARCHAIC = re.compile(
    r"(?<![Tt]here )\bis no [a-z]|None where|\bof (?:which|whom)\b|held against|\bnobody\b|\bwant of\b|\bsays? of\b"
    r'|that is not there|as it comes|\bbeside (?!/)|\b(?:has|have|was|been) told\b|"{3}(?:What|Of|Whether|Where)\b'
)
PLAIN = 1  # at most; lower it with each that goes
