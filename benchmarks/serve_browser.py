"""`vramtui serve` in a real browser: Chromium without a window is steered over its own protocol. It opens the address,
types, clicks, resizes and takes a picture; a page from elsewhere then tries to reach the same websocket.

    python benchmarks/serve_browser.py --picture tab.png

Needs Chromium and the extra `serve`. The exit status says whether all of it was right.
"""

import argparse
import asyncio
import base64
import contextlib
import http.server
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import aiohttp
import pyte

PATIENCE = 45.0
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
FOREIGN = """new Promise(done => { const s = new WebSocket('%s');
 s.onopen = () => done('open'); s.onerror = () => done('refused'); })"""


class Page:
    """A tab of the browser, and the terminal that its websocket draws."""

    def __init__(self, socket: "aiohttp.ClientWebSocketResponse[bool]") -> None:
        self._socket = socket
        self._number = 0
        self.terminal = pyte.Screen(400, 200)
        self._stream = pyte.ByteStream(self.terminal)

    async def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """One command of the protocol, and its answer."""
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        while True:
            answer = await self._next(PATIENCE)
            if answer.get("id") == self._number:
                found: dict[str, Any] = answer.get("result", {})
                return found

    async def wait_for(self, words: str) -> None:
        """Until its terminal shows that."""
        until = time.monotonic() + PATIENCE
        while words not in "\n".join(self.terminal.display):
            if time.monotonic() > until:
                shown = "\n".join(line.rstrip() for line in self.terminal.display).rstrip()
                raise SystemExit(f"{shown}\nnot seen: {words}")
            with contextlib.suppress(asyncio.TimeoutError):
                await self._next(1.0)

    async def value(self, script: str) -> str:
        """What a script in the page gives."""
        answer = await self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        return str(answer["result"].get("value"))

    async def go(self, address: str) -> None:
        """Open another page, and wait until it is there."""
        await self.call("Page.navigate", url=address)
        place = address.partition("?")[0]
        for _ in range(400):
            if await self.value("document.readyState + ' ' + location.href.split('?')[0]") == f"complete {place}":
                break
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.5)

    async def type(self, key: str) -> None:
        """Press a key."""
        for kind in ("keyDown", "keyUp"):
            await self.call("Input.dispatchKeyEvent", type=kind, key=key, text=key if kind == "keyDown" else "")

    async def click(self, words: str, width: int, height: int) -> None:
        """Press and release the left button on words that the terminal shows, in a window of that size."""
        columns, rows = int(await self.value("window.sizes.width")), int(await self.value("window.sizes.height"))
        y = next(at for at, line in enumerate(self.terminal.display) if words in line)
        place = {"x": (self.terminal.display[y].index(words) + 1) * width / columns, "y": (y + 0.5) * height / rows}
        for kind in ("mousePressed", "mouseReleased"):
            await self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **place)

    async def resize(self, width: int, height: int) -> None:
        """Another size of the window; what the terminal shows from then on is drawn anew."""
        self.terminal.reset()
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    async def _next(self, seconds: float) -> dict[str, Any]:
        told: dict[str, Any] = json.loads((await asyncio.wait_for(self._socket.receive(), seconds)).data)
        frame = told.get("params", {}).get("response", {})
        if told.get("method") == "Network.webSocketFrameReceived" and frame.get("opcode") == 2:
            self._stream.feed(base64.b64decode(frame["payloadData"]))
        return told


# Keeps the size that the page tells its terminal.
SIZES = """window.sizes = {}; const send = WebSocket.prototype.send; WebSocket.prototype.send = function (text) {
 try { const said = JSON.parse(text); if (said[0] === 'resize') window.sizes = said[1]; } catch (e) {}
 return send.call(this, text); };
 const Own = WebSocket; window.WebSocket = function (url, names) { const at = new URL(url);
 window.sizes = { width: +at.searchParams.get('width'), height: +at.searchParams.get('height') };
 return new Own(url, names); }; window.WebSocket.prototype = Own.prototype;"""


async def look(address: str, port: int, elsewhere: str) -> bytes:
    """All that is to be tried; a picture of it."""
    base = address.partition("/?")[0]
    async with aiohttp.ClientSession() as session:
        async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
            (tab,) = [one for one in await answer.json() if one["type"] == "page"]
        async with session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as socket:
            page = Page(socket)
            for domain in ("Network", "Page", "Runtime"):
                await page.call(f"{domain}.enable")
            await page.call("Page.addScriptToEvaluateOnNewDocument", source=SIZES)
            await page.call("Emulation.setFocusEmulationEnabled", enabled=True)
            await page.resize(1200, 700)
            await page.call("Page.navigate", url=address)
            await page.wait_for("its GPUs are not real")
            await page.wait_for("train.py")
            place = await page.value("location.href")
            print(f"drawn in {await page.value('JSON.stringify(window.sizes)')}; the address is now {place}")
            assert "token" not in place
            await page.type("e")
            await page.wait_for("view-only")
            print("typed, without a click before: the editor is refused")
            await page.click("2 Plan", 1200, 700)
            await page.wait_for("limit of what fits")
            print("clicked: the Plan screen")
            picture = base64.b64decode((await page.call("Page.captureScreenshot"))["data"])
            before = await page.value("JSON.stringify(window.sizes)")
            await page.resize(800, 500)
            await page.wait_for("2 Plan")
            print(f"resized: {before} to {await page.value('JSON.stringify(window.sizes)')}")
            socket_of = base.replace("http", "ws") + "/ws"
            await page.go(elsewhere)
            print(f"from another page: {(said := await page.value(FOREIGN % socket_of))}")
            assert said == "refused"
            await page.go(f"{base}/?token=wrong")
            assert "not the token" in await page.value("document.body.innerText")
            print("a wrong token: refused")
            return picture


def main() -> None:
    """Serve the demo, start the browser, and try it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--picture", type=Path, default=Path("serve.png"))
    asked = parser.parse_args()
    browser = next((path for name in CHROMIUM if (path := shutil.which(name))), None)
    if browser is None:
        raise SystemExit("no Chromium here")
    serve = [sys.executable, "-m", "vramtui", "serve", "--demo", "--listen", "127.0.0.1:0"]
    other = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    threading.Thread(target=other.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as profile:
        options = ("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "about:blank")
        served = subprocess.Popen(serve, stdout=subprocess.PIPE, text=True)
        shown = subprocess.Popen([browser, f"--user-data-dir={profile}", *options], stderr=subprocess.DEVNULL)
        try:
            assert served.stdout is not None
            address = served.stdout.readline().strip()
            told = Path(profile, "DevToolsActivePort")
            until = time.monotonic() + PATIENCE
            while not (told.exists() and told.read_text()) and time.monotonic() < until:
                time.sleep(0.1)
            port = int(told.read_text().split()[0])
            picture = asyncio.run(look(address, port, f"http://localhost:{other.server_port}/"))
            asked.picture.write_bytes(picture)
            print(f"picture: {asked.picture}, {len(picture):,} B")
        finally:
            for one in (shown, served):
                one.terminate()
                one.wait(PATIENCE)


if __name__ == "__main__":
    main()
