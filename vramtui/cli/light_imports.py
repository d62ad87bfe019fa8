"""Libraries without what they load for parts that are not used here: Typer's help and Textual."""

import sys
import typing
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType

if typing.TYPE_CHECKING:
    from pathlib import Path

# typer/rich_utils.py (0.28) has them for help that is written in Markdown and for its own pictures of exceptions, and
# takes as long to load them as all else. Both are switched off here: `rich_markup_mode` and `pretty_exceptions_enable`.
_UNUSED = {"rich.markdown": "Markdown", "rich.traceback": "Traceback"}
# OpenSSL: asyncio and hashlib do without it where there is none (Lib/asyncio/sslproto.py, Lib/hashlib.py of Python
# 3.10 to 3.14). Whoever needs it later, Prometheus over https, loads it as ever.
_ABSENT = ("ssl", "_hashlib")
# shutil looks for them, to unpack archives (Lib/shutil.py of Python 3.10 to 3.14).
_ARCHIVES = ("bz2", "lzma")
# urllib.parse (from Python 3.11.4 on) has it for addresses in brackets; subprocess for what it decodes, which nothing
# here lets it; Textual for screenshots of its own; msgspec for who asks for types; asyncio for TLS.
_LATER = ("ipaddress", "locale", "mimetypes", "msgspec.inspect", "asyncio.sslproto")
# textual/keys.py asks for the characters of its keys by their names in Unicode.
_CHARACTERS = {
    "EXCLAMATION MARK": "!", "QUOTATION MARK": '"', "NUMBER SIGN": "#", "DOLLAR SIGN": "$", "PERCENT SIGN": "%",
    "AMPERSAND": "&", "APOSTROPHE": "'", "LEFT PARENTHESIS": "(", "RIGHT PARENTHESIS": ")", "ASTERISK": "*",
    "PLUS SIGN": "+", "COMMA": ",", "HYPHEN-MINUS": "-", "FULL STOP": ".", "SOLIDUS": "/", "COLON": ":",
    "SEMICOLON": ";", "LESS-THAN SIGN": "<", "EQUALS SIGN": "=", "GREATER-THAN SIGN": ">", "QUESTION MARK": "?",
    "COMMERCIAL AT": "@", "LEFT SQUARE BRACKET": "[", "REVERSE SOLIDUS": "\\", "RIGHT SQUARE BRACKET": "]",
    "CIRCUMFLEX ACCENT": "^", "LOW LINE": "_", "GRAVE ACCENT": "`", "LEFT CURLY BRACKET": "{", "VERTICAL LINE": "|",
    "RIGHT CURLY BRACKET": "}", "TILDE": "~", "SPACE": " ", "TAB": "\t", "ESCAPE": "\x1b", "BACKSPACE": "\x08",
    "DELETE": "\x7f",
}  # fmt: skip
_OTHER_KEYS = {
    "ENTER", "LEFT", "RIGHT", "UP", "DOWN", "HOME", "END", "PAGEUP", "PAGEDOWN", "INSERT", "SLASH",
    *(f"F{number}" for number in range(1, 25)),
}  # fmt: skip
# textual/app.py and theme.py (8.2): Textual's own palette, with its lists and inputs; ours is app/ui/action_chooser.py.
_PALETTE = ("CommandListItem", "CommandPalette", "DiscoveryHit", "Hit", "Hits", "Provider", "SimpleProvider")


def leave_out_markdown() -> None:
    """Let Typer draw help without them; whoever asks for them by name later gets the real ones."""
    absent = {name: title for name, title in _UNUSED.items() if name not in sys.modules}
    for name, title in absent.items():
        sys.modules[name] = _stand_in(name, (title,))
    try:
        import typer.rich_utils  # noqa: F401 - here is what it is loaded for
    finally:
        for name in absent:
            del sys.modules[name]


def _stand_in(name: str, classes: tuple[str, ...]) -> ModuleType:
    """A module of empty classes."""
    module = ModuleType(name)
    for title in classes:
        setattr(module, title, type(title, (), {}))
    return module


class _LaterModule(ModuleType):
    """A module that is loaded when something of it is used."""

    def __getattr__(self, name: str) -> typing.Any:  # noqa: ANN401 - whatever the module has
        if name[:2] == "__":  # which `from … import` looks for
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        self.__dict__.update(vars(import_module(self.__name__)))
        try:
            return self.__dict__[name]
        except KeyError:
            raise AttributeError(name) from None


def _character_named(name: str) -> str:
    """`unicodedata.lookup`, without its tables, which are a megabyte, for the keys of a keyboard.

    Raises:
        KeyError: no character has that name.
    """
    if name in _CHARACTERS:
        return _CHARACTERS[name]
    if len(name) == 1 or name in _OTHER_KEYS:
        raise KeyError(name)
    from unicodedata import lookup  # another keyboard's key

    return lookup(name)


def _find_library(name: str) -> str | None:
    """What pynvml asks for on Windows."""
    from ctypes.util import find_library  # it loads subprocess and tempfile

    return find_library(name)


def _get_close_matches(*arguments: typing.Any, **options: typing.Any) -> list[str]:  # noqa: ANN401 - as difflib has it
    """What Textual suggests for a style sheet with a wrong word."""
    from difflib import get_close_matches  # it is for faults

    return get_close_matches(*arguments, **options)


def _dumps(value: object) -> bytes:
    """What rich/style.py takes of pickle, for styles that carry something."""
    from pickle import dumps  # none does here

    return dumps(value)


def _loads(text: bytes) -> typing.Any:  # noqa: ANN401 - as pickle has it
    """What `_dumps` was given."""
    from pickle import loads  # as it says

    return loads(text)  # noqa: S301 - of this process


def _user_downloads_path() -> "Path":
    """Where Textual would put a screenshot of its own, which nothing here asks it for."""
    from platformdirs import user_downloads_path  # it loads every compression of the standard library

    return user_downloads_path()


@contextmanager
def _holding(modules: Mapping[str, ModuleType | None]) -> Iterator[None]:
    """Put these in the place of modules that are not loaded yet while the block runs."""
    stand_ins = {name: module for name, module in modules.items() if name not in sys.modules}
    sys.modules.update(stand_ins)  # type: ignore[arg-type]  # None is how Python is told that there is no such module
    try:
        yield
    finally:
        for name, module in stand_ins.items():
            if sys.modules.get(name) is module:
                sys.modules.pop(name, None)


@contextmanager
def without_rare() -> Iterator[None]:
    """Keep what is loaded in the block from loading at once what it rarely uses."""
    modules: dict[str, ModuleType] = {name: _LaterModule(name) for name in _LATER}
    libraries = modules["ctypes.util"] = ModuleType("ctypes.util")
    libraries.find_library = _find_library  # type: ignore[attr-defined]  # that is how a module has one
    names = modules["unicodedata"] = _LaterModule("unicodedata")
    names.__dict__["lookup"] = _character_named
    differences = modules["difflib"] = ModuleType("difflib")
    differences.get_close_matches = _get_close_matches  # type: ignore[attr-defined]  # that is how a module has one
    pickled = modules["pickle"] = _LaterModule("pickle")
    pickled.__dict__.update(dumps=_dumps, loads=_loads)
    if sys.version_info >= (3, 11):  # what msgspec and Textual take of it is in Python itself by now
        extensions = modules["typing_extensions"] = _LaterModule("typing_extensions")
        extensions.__dict__.update({name: value for name, value in vars(typing).items() if name[:2] != "__"})
    with _holding({**modules, **dict.fromkeys(_ARCHIVES)}):
        import shutil  # noqa: F401 - here is what it is loaded for

        yield


@contextmanager
def without_unused() -> Iterator[None]:
    """Keep what is loaded in the block from loading these; afterwards each can be loaded as ever."""
    # textual/app.py (8.2) has it for screenshots that are delivered to a browser.
    folders = ModuleType("platformdirs")
    folders.user_downloads_path = _user_downloads_path  # type: ignore[attr-defined]  # that is how a module has one
    palette = _stand_in("textual.command", _PALETTE)
    with without_rare(), _holding({**dict.fromkeys(_ABSENT), "platformdirs": folders, "textual.command": palette}):
        yield
