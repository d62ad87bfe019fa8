"""Libraries without what they load for parts that are not used here: Typer's help and Textual."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

# typer/rich_utils.py (0.28) has them for help that is written in Markdown and for its own pictures of exceptions, and
# takes as long to load them as all else. Both are switched off here: `rich_markup_mode` and `pretty_exceptions_enable`.
_UNUSED = {"rich.markdown": "Markdown", "rich.traceback": "Traceback"}
# OpenSSL: asyncio and hashlib do without it where there is none (Lib/asyncio/sslproto.py, Lib/hashlib.py of Python
# 3.10 to 3.14). Whoever needs it later, Prometheus over https, loads it as ever.
_ABSENT = ("ssl", "_hashlib")


def leave_out_markdown() -> None:
    """Let Typer draw help without them; whoever asks for them by name later gets the real ones."""
    absent = {name: title for name, title in _UNUSED.items() if name not in sys.modules}
    for name, title in absent.items():
        module = ModuleType(name)
        setattr(module, title, type(title, (), {}))
        sys.modules[name] = module
    try:
        import typer.rich_utils  # noqa: F401 - here is what it is loaded for
    finally:
        for name in absent:
            del sys.modules[name]


def _user_downloads_path() -> Path:
    """Where Textual would put a screenshot of its own, which nothing here asks it for."""
    from platformdirs import user_downloads_path  # it loads every compression of the standard library

    return user_downloads_path()


def _stand_ins() -> Iterator[ModuleType]:
    # textual/app.py (8.2) has it for screenshots that are delivered to a browser.
    folders = ModuleType("platformdirs")
    folders.user_downloads_path = _user_downloads_path  # type: ignore[attr-defined]  # that is how a module has one
    yield folders
    # textual/command.py has it for an annotation; it loads trees, folders and lists to choose from.
    types = ModuleType("textual.types")
    types.IgnoreReturnCallbackType = object  # type: ignore[attr-defined]  # as above
    yield types


@contextmanager
def without_unused() -> Iterator[None]:
    """Keep what is loaded in the block from loading these; afterwards each can be loaded as ever."""
    held = dict.fromkeys(_ABSENT) | {module.__name__: module for module in _stand_ins()}
    held = {name: module for name, module in held.items() if name not in sys.modules}
    sys.modules.update(held)  # type: ignore[arg-type]  # None is how Python is told that there is no such module
    try:
        yield
    finally:
        for name in held:
            sys.modules.pop(name, None)
