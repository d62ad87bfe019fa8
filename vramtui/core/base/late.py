"""Stand-ins for functions and modules, which are loaded when they are first used.

Of many ways to answer, a command needs one. The libraries of the dashboard import modules for features that it uses
seldom or not at all, which take 5 MB: a stand-in is imported instead of each.
"""

import gc
import importlib
import marshal
import re
import sys
import typing
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

# asyncio and shutil work without these.
UNUSED = ("bz2", "ssl")
DEFERRED = (
    "ast", "asyncio.sslproto", "asyncio.staggered", "ctypes.util", "decimal", "difflib", "ipaddress", "json", "locale",
    "mimetypes", "msgspec._json_schema", "msgspec.inspect", "msgspec.toml", "msgspec.yaml", "pickle", "platformdirs",
    "random", "rich.padding", "rich.panel", "rich.table", "rich.tree", "shutil", "tempfile", "textual.command",
    "textual.css._help_renderables", "textual.css._help_text", "textual.pilot", "textwrap", "tokenize", "traceback",
    "typing_extensions", "unicodedata", "urllib.parse", "uuid",
)  # fmt: skip
# The names of characters that are keys; of letters and digits none is asked for.
PUNCTUATION = dict(zip(" !\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", (
    "SPACE", "EXCLAMATION MARK", "QUOTATION MARK", "NUMBER SIGN", "DOLLAR SIGN", "PERCENT SIGN", "AMPERSAND",
    "APOSTROPHE", "LEFT PARENTHESIS", "RIGHT PARENTHESIS", "ASTERISK", "PLUS SIGN", "COMMA", "HYPHEN-MINUS",
    "FULL STOP", "SOLIDUS", "COLON", "SEMICOLON", "LESS-THAN SIGN", "EQUALS SIGN", "GREATER-THAN SIGN",
    "QUESTION MARK", "COMMERCIAL AT", "LEFT SQUARE BRACKET", "REVERSE SOLIDUS", "RIGHT SQUARE BRACKET",
    "CIRCUMFLEX ACCENT", "LOW LINE", "GRAVE ACCENT", "LEFT CURLY BRACKET", "VERTICAL LINE", "RIGHT CURLY BRACKET",
    "TILDE",
), strict=True))  # fmt: skip
CHARACTERS = {name: character for character, name in PUNCTUATION.items()}
# Other keys, which are asked for as characters too.
KEYS = ".|UP|DOWN|LEFT|RIGHT|HOME|END|PAGEUP|PAGEDOWN|ENTER|ESCAPE|TAB|BACKSPACE|DELETE|INSERT|SLASH|F[0-9]+"

TRUTH = {"True": True, "False": False, "None": None}
LITERAL = r"'[^'\\]*'|-?[1-9]\d*|0|\b(?:True|False|None)\b"
LITERALS = rf"\((?:(?:{LITERAL}), ?)+\)"
# Flags of a function whose first constant may be its docstring: CO_OPTIMIZED, from Python 3.14 on CO_HAS_DOCSTRING too.
HAS_DOCSTRING = 1 if sys.version_info < (3, 14) else 1 | 1 << 26
PICKLE = b"\x80"  # how a pickle begins, and nothing of marshal's


class LateName:
    """Stands in for a function or class of a module, which is loaded when it is first called; also as a base, which it
    then is not.
    """

    __slots__ = ("_module", "_name")

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def __call__(self, *positional: Any, **named: Any) -> Any:  # noqa: ANN401 - as the real one has it
        return getattr(load(self._module), self._name)(*positional, **named)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as the real one has it
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(getattr(load(self._module), self._name), name)

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        del bases
        return ()


def late(place: str) -> Any:  # noqa: ANN401 - a function, or a class with its own methods
    """Return a stand-in for what is at `place`, as `package.module:name`."""
    return LateName(*place.split(":"))


class LateModule(ModuleType):
    """Stands in for a module; its names are stand-ins too as long as it is the one that is imported."""

    __all__ = ()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as the real module has it
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            return LateName(self.__name__, name)
        return getattr(load(self.__name__), name)


class TypingExtensions(LateModule):
    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as the real module has it
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(typing if hasattr(typing, name) else load(self.__name__), name)


class UnicodeNames(LateModule):
    def name(self, character: str, *default: str) -> str:
        return PUNCTUATION.get(character) or load(self.__name__).name(character, *default)

    def lookup(self, name: str) -> str:
        if re.fullmatch(KEYS, name):
            raise KeyError(name)
        return CHARACTERS.get(name) or load(self.__name__).lookup(name)


class Types(LateModule):
    """msgspec and fractions ask of a value whether it is a Decimal or UUID. No value here is."""

    Decimal, UUID = type("Decimal", (), {}), type("UUID", (), {})
    SafeUUID = type("SafeUUID", (), {"unknown": None})


class Literals(LateModule):
    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as the real module has it
        if name.startswith("__") or name == "NodeVisitor":  # a base in `inspect`
            return super().__getattr__(name)
        return getattr(load(self.__name__), name)

    def literal_eval(self, text: str) -> Any:  # noqa: ANN401 - what the text says
        """Arguments of a key are numbers, words and truth values: `('batch size', -1,)`."""
        words = re.findall(LITERAL, text) if re.fullmatch(LITERALS, text) else None
        if words is None:
            return load(self.__name__).literal_eval(text)
        return tuple(word[1:-1] if word[0] == "'" else TRUTH[word] if word in TRUTH else int(word) for word in words)


class Pickles(LateModule):
    """Rich and Textual keep the action of a click as bytes: mostly words in a dict."""

    def dumps(self, value: Any) -> bytes:  # noqa: ANN401 - as the real one has it
        try:
            return marshal.dumps(value, 2)  # the same bytes for the same words: later versions count references
        except ValueError:
            return bytes(load(self.__name__).dumps(value))

    def loads(self, data: bytes) -> Any:  # noqa: ANN401 - what `dumps` was given
        return load(self.__name__).loads(data) if data.startswith(PICKLE) else marshal.loads(data)  # noqa: S302 - our own


class Random(LateModule):
    def getrandbits(self, count: int) -> int:
        return id(self) % (1 << count)  # rich numbers its links from there on


KINDS: dict[str, type[LateModule]] = {
    "ast": Literals,
    "decimal": Types,
    "pickle": Pickles,
    "random": Random,
    "typing_extensions": TypingExtensions,
    "unicodedata": UnicodeNames,
    "uuid": Types,
}


def load(name: str) -> Any:  # noqa: ANN401 - a module
    if isinstance(sys.modules.get(name), LateModule):
        del sys.modules[name]
    return importlib.import_module(name)


def defer() -> None:
    """Import stand-ins from now on."""
    # Before Python 3.12 `datetime` makes its classes in Python first, and these stay: 0.3 MB.
    sys.modules.setdefault("datetime", importlib.import_module("_datetime"))
    for name in DEFERRED:
        sys.modules.setdefault(name, KINDS.get(name, LateModule)(name))
    for name in UNUSED:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]  # as importlib has it


def leave_docstrings_out() -> None:
    """Load modules without their functions' docstrings from now on. They take 1 MB."""
    from opcode import opmap  # noqa: PLC0415 - this function's alone

    whole: Any = SourceFileLoader.get_code
    uses = [bytes((opmap[name], 0)) for name in ("LOAD_CONST", "RETURN_CONST") if name in opmap]

    def brief(code: CodeType) -> CodeType:
        constants = [brief(one) if isinstance(one, CodeType) else one for one in code.co_consts]
        may_have = code.co_flags & HAS_DOCSTRING == HAS_DOCSTRING and code.co_name[0] != "<"
        if may_have and isinstance(constants[0], str) and not any(use in code.co_code for use in uses):
            constants[0] = None
        is_same = all(one is other for one, other in zip(constants, code.co_consts, strict=True))
        return code if is_same else code.replace(co_consts=tuple(constants))

    setattr(SourceFileLoader, "get_code", lambda loader, name: brief(whole(loader, name)))  # noqa: B010 - for types a method


def end_deferring() -> None:
    """Let every further import load the module itself, except Textual's when the app begins to run."""
    delattr(SourceFileLoader, "get_code")
    for name in DEFERRED:
        if name != "textual.pilot" and isinstance(sys.modules.get(name), LateModule):
            del sys.modules[name]
    for name in UNUSED:
        if sys.modules.get(name) is None:
            sys.modules.pop(name, None)


def prune_nvml() -> None:
    """Drop the hundreds of structures and functions of pynvml that `sources/nvml` does not name: 1.5 MB."""
    from pathlib import Path  # noqa: PLC0415 - loads modules that are deferred

    nvml, source = sys.modules.get("pynvml"), sys.modules.get("vramtui.sources.nvml")
    if nvml is None or source is None or source.__file__ is None:
        return
    names, package = vars(nvml), Path(source.__file__).parents[2]
    files = [*package.glob("sources/nvml/*.py"), *package.glob("agent/*.py")]
    waiting = {
        name for file in files for name in re.findall(r"\w*nvml\w+", file.read_text(encoding="utf-8"), re.IGNORECASE)
    }
    waiting |= {name for name in names if name.startswith(("__", "NVML_ERROR", "NVMLError"))}
    needed = set[str]()
    while waiting := (waiting & names.keys()) - needed:
        needed |= waiting
        waiting = {one for name in waiting for one in _names_in(names[name])}
    for name in names.keys() - needed:
        del names[name]
    gc.collect()


def _names_in(value: Any) -> Iterator[str]:  # noqa: ANN401 - a function, a class or another value
    """Every name that a function, or a class in its own methods and its bases', uses."""
    kinds = value.__mro__ if isinstance(value, type) else ()
    for one in (value, *kinds, *(method for kind in kinds for method in vars(kind).values())):
        yield getattr(one, "__name__", "")
        yield from getattr(getattr(getattr(one, "__wrapped__", one), "__code__", None), "co_names", ())
