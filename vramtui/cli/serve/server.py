"""The web server: a page, the terminal that it draws, and a websocket for each tab."""

import asyncio
import contextlib
import fcntl
import importlib.util
import logging
import os
import signal
import struct
import sys
import termios
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import WSMsgType, web
from aiohttp.http_exceptions import HttpProcessingError

from vramtui.cli.common.settings import VARIABLES
from vramtui.cli.serve.access import HEADERS, Access
from vramtui.core.base.errors import UserError, install_hint

PIECE = 1 << 16
LARGEST = 1000  # columns or rows
PATIENCE = 2.0  # seconds in which a dashboard ends when asked to
KEPT = (
    *("HOME", "LANG", "LC_ALL", "LC_CTYPE", "PATH", "TMPDIR", "TZ", "USER"),
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"),
    *("VRAMTUI_CONFIG_DIR", "VRAMTUI_DATA_DIR", *VARIABLES),
)


class Tab:
    """One dashboard. It reads samples from a pipe, and has neither a terminal nor a descriptor of anybody else's."""

    def __init__(self) -> None:
        self._main = -1
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, feed: int, width: int, height: int) -> None:
        """Open it; `feed` is the end of a pipe through which recordings come, and is closed here."""
        self._main, terminal = os.openpty()
        try:
            self.resize(width, height)
            os.set_blocking(self._main, False)
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P" if sys.version_info >= (3, 11) else "-I", "-m", "vramtui"),
                *("--view-only", "--served", str(feed)),
                stdin=terminal,
                stdout=terminal,
                stderr=terminal,
                pass_fds=(feed,),
                start_new_session=True,
                env={
                    **{name: os.environ[name] for name in KEPT if name in os.environ},
                    "TERM": "xterm-256color",
                    "COLORTERM": "truecolor",
                },
            )
        finally:
            os.close(terminal)
            os.close(feed)

    def resize(self, width: int, height: int) -> None:
        """Another size; figures that no terminal has are brought to those that one could have."""
        columns, rows = (max(1, min(LARGEST, number)) for number in (width, height))
        fcntl.ioctl(self._main, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGWINCH)

    def type(self, text: str) -> None:
        """Send keys; what a dashboard that stands still cannot take is lost."""
        with contextlib.suppress(OSError):
            os.write(self._main, text.encode(errors="replace"))

    async def output(self) -> AsyncIterator[bytes]:
        """What it draws, piece by piece, until it ends; it waits for whoever takes the pieces."""
        loop = asyncio.get_running_loop()
        while True:
            readable: asyncio.Future[None] = loop.create_future()
            loop.add_reader(self._main, _resolve, readable)
            try:
                await readable
            finally:
                loop.remove_reader(self._main)
            try:
                piece = os.read(self._main, PIECE)
            except BlockingIOError:
                continue
            except OSError:  # its end of the terminal is closed
                return
            if not piece:
                return
            yield piece

    async def stop(self) -> None:
        """End it, if it has not ended."""
        process = self._process
        if process is not None and process.returncode is None:
            for number in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(number)
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(process.wait(), PATIENCE)
                    break
        if self._main >= 0:
            os.close(self._main)
            self._main = -1


def _resolve(waited: "asyncio.Future[None]") -> None:
    if not waited.done():
        waited.set_result(None)


LARGEST_MESSAGE = 1 << 16  # bytes that a browser sends at once: a pasted text
HEARTBEAT = 15.0  # seconds; a tab that is gone without a word is noticed after two
NO_BODY = 1024
STATIC = {"xterm.css": "css/xterm.css", "textual.js": "js/textual.js"}  # all that is served of textual-serve
FULL = "No more tabs: close one, or start with a larger --tabs."
PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>vramtui</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="static/xterm.css"><link rel="stylesheet" href="static/page.css">
<script src="static/textual.js"></script><script src="static/page.js"></script></head>
<body><p class="closed">The dashboard has ended. Reload this page for another.</p>
<div id="terminal" class="textual-terminal" data-session-websocket-url="{websocket}" data-font-size="16"></div>
</body></html>
"""
STYLE = """html, body { margin: 0; height: 100%; background: #0c0c0c; overflow: hidden; }
.textual-terminal { width: 100vw; height: 100vh; }
.xterm .xterm-viewport { overflow: hidden; }
.closed { display: none; position: absolute; z-index: 10; width: 100%; top: 40%; text-align: center;
color: #ddd; font: 16px sans-serif; }
body.-closed .closed { display: block; }
"""
# xterm.js takes keys from a text area of its own, which is there once it has opened.
SCRIPT = """new MutationObserver((_, observer) => {
  const keys = document.querySelector(".xterm-helper-textarea");
  if (keys) { keys.focus(); observer.disconnect(); }
}).observe(document, { childList: true, subtree: true });
"""
OWN_FILES = {"page.css": (STYLE, "text/css"), "page.js": (SCRIPT, "text/javascript")}
AddReader = Callable[[], int]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def static_folder() -> Path:
    """Where textual-serve keeps the terminal that a browser draws (xterm.js).

    Raises:
        UserError: it is not installed.
    """
    module = importlib.util.find_spec("textual_serve")
    if module is None or module.origin is None:
        raise UserError(f"serve needs textual-serve: {install_hint('serve')}")
    return Path(module.origin).parent / "static"


class TabServer:
    """Makes the web application.

    Args:
        access: who may see it.
        add_reader: a new pipe through which samples come.
        most: tabs at once.
        scheme: http or https.
    """

    def __init__(self, access: Access, add_reader: AddReader, most: int, scheme: str = "http") -> None:
        self._access = access
        self._add_reader = add_reader
        self._most = most
        self._scheme = scheme
        self._static = static_folder()
        self._open: set[web.WebSocketResponse] = set()

    @staticmethod
    def quiet_log() -> logging.Logger:
        """A log without what clients do wrong: whoever scans ports writes nothing on this terminal."""
        log = logging.getLogger("vramtui.serve")
        log.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError)))
        return log

    def application(self) -> web.Application:
        """Build the web application, with every route behind the same checks."""
        app = web.Application(middlewares=[self._checked], client_max_size=NO_BODY)
        app.add_routes(
            [
                web.get("/", self._page),
                web.get("/static/{name}", self._file),
                web.get("/ws", self._websocket),
            ]
        )
        app.on_shutdown.append(self._end)
        return app

    @web.middleware
    async def _checked(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            response = await self._answer(request, handler)
        except web.HTTPException as error:
            error.headers.update(HEADERS)
            raise
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        access = self._access
        if not access.is_ours(request.headers):
            raise web.HTTPMisdirectedRequest(text="This server is not called that.")
        if request.path == "/" and "token" in request.query:
            if not access.is_token(request.query["token"]):
                raise web.HTTPForbidden(text="That is not the token of this start; the terminal shows it.")
            # The token leaves the address, and with that what the browser remembers.
            response: web.StreamResponse = web.HTTPSeeOther("/")
            secure = self._scheme == "https"
            response.set_cookie(access.cookie, access.session, httponly=True, samesite="Strict", secure=secure)
            return response
        if not access.is_session(request.cookies.get(access.cookie)):
            raise web.HTTPForbidden(text="Open the address that vramtui serve has printed, with its token.")
        return await handler(request)

    async def _page(self, request: web.Request) -> web.StreamResponse:
        socket = "wss" if self._scheme == "https" else "ws"
        # `is_ours` has looked at the name: nothing else can be in it.
        page = PAGE.format(websocket=f"{socket}://{request.headers['Host']}/ws")
        return web.Response(text=page, content_type="text/html")

    async def _file(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        if name in OWN_FILES:
            text, kind = OWN_FILES[name]
            return web.Response(text=text, content_type=kind)
        if name not in STATIC:
            raise web.HTTPNotFound
        return web.FileResponse(self._static / STATIC[name])

    async def _websocket(self, request: web.Request) -> web.StreamResponse:
        if not self._access.is_own_page(request.headers, self._scheme):
            raise web.HTTPForbidden(text="Not from a page of this server.")
        if len(self._open) >= self._most:
            raise web.HTTPServiceUnavailable(text=FULL)
        websocket = web.WebSocketResponse(heartbeat=HEARTBEAT, max_msg_size=LARGEST_MESSAGE)
        self._open.add(websocket)
        tab = Tab()
        try:
            await websocket.prepare(request)
            await tab.start(self._add_reader(), _number(request, "width", 80), _number(request, "height", 24))
            drawing = asyncio.create_task(_draw(tab, websocket))
            try:
                await _obey(tab, websocket)
            finally:
                drawing.cancel()
                with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                    await drawing
        finally:
            self._open.discard(websocket)
            await tab.stop()
        return websocket

    async def _end(self, app: web.Application) -> None:
        del app
        for websocket in list(self._open):
            await websocket.close(code=1001)


async def _draw(tab: Tab, websocket: web.WebSocketResponse) -> None:
    async for piece in tab.output():
        await websocket.send_bytes(piece)
    await websocket.close()


async def _obey(tab: Tab, websocket: web.WebSocketResponse) -> None:
    """Take keys and sizes; what is no message of the page's ends the tab."""
    async for message in websocket:
        try:
            request = msgspec.json.decode(message.data) if message.type == WSMsgType.TEXT else None
            answer = _take(tab, request)
        except (msgspec.DecodeError, TypeError, ValueError, KeyError):
            await websocket.close(code=1003)
            return
        if answer is not None:
            await websocket.send_json(answer)


def _take(tab: Tab, request: Any) -> list[object] | None:  # noqa: ANN401 - whatever a browser sends
    """Do what a message says; the answer to it, if there is one.

    Raises:
        TypeError, ValueError, KeyError: it is no message of the page's.
    """
    kind, *rest = request
    if kind == "stdin" and isinstance(rest[0], str):
        tab.type(rest[0])
    elif kind == "resize":
        tab.resize(int(rest[0]["width"]), int(rest[0]["height"]))
    elif kind == "ping" and isinstance(rest[0], str | int):
        return ["pong", rest[0]]
    elif kind not in ("focus", "blur"):
        raise ValueError
    return None


def _number(request: web.Request, name: str, otherwise: int) -> int:
    text = request.query.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else otherwise
