"""Prometheus' HTTP query API (stable since 2.0): instant and range queries; a token only where nobody reads along."""

import http.client
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from ipaddress import ip_address
from pathlib import Path
from queue import Empty, SimpleQueue

import msgspec

from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.core.base.text import printable

TIMEOUT = 10.0  # seconds of each read
PATIENCE = {"query": 10.0, "query_range": 30.0}  # seconds of a whole exchange
LARGEST = 256 << 20  # bytes of an answer: a past of 15 minutes of 10,000 GPUs is 100 MiB
# Each series has two objects, and each of its values is a list: these 10,000 GPUs have 90,000 series, and their past
# 40,000 with 60 values each.
MOST_OBJECTS, MOST_LISTS = 1 << 19, 3_000_000
LONGEST_TOKEN = 16384


class PrometheusSeries(msgspec.Struct, frozen=True):
    """One series: its labels, and its values as (seconds since the epoch, figure as text)."""

    metric: dict[str, str]
    value: tuple[float, str] | None = None
    values: tuple[tuple[float, str], ...] = ()


class _Data(msgspec.Struct, frozen=True):
    result: tuple[PrometheusSeries, ...] = ()


class _Answer(msgspec.Struct, frozen=True):
    status: str
    data: _Data | None = None
    error: str = ""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A token is for the server that was named."""

    def redirect_request(self, *_: object, **__: object) -> None:
        """Follow no redirect: it is the answer."""


class PrometheusClient:
    """Asks one server.

    Args:
        url: `https://prometheus.example`, or with a path before `/api/v1`.
        token_file: holds a bearer token; it is read for each request, as it may be renewed, and never shown.

    Raises:
        UserError: the address is none, or a token would go over a network in the open.
    """

    def __init__(self, url: str, token_file: Path | None = None) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UserError(f"--prometheus takes an address like http://localhost:9090, not {printable(url)!r}")
        if parts.username or parts.password or parts.query:
            raise UserError("--prometheus: a password or query does not belong into the address; see --token-file")
        if token_file is not None and parts.scheme == "http" and not is_loopback(parts.hostname):
            raise UserError("--token-file: a token goes over https or to this machine only, and this is http")
        self.title = parts.netloc
        self._base = url.rstrip("/")
        self._token_file = token_file
        self._reading: threading.Thread | None = None
        self._opener = urllib.request.build_opener(
            _NoRedirect(), urllib.request.HTTPSHandler(context=ssl.create_default_context())
        )

    def query(self, expression: str) -> tuple[PrometheusSeries, ...]:
        """The present value of every series.

        Raises:
            SourceFailed: there is no answer, or it is an error.
        """
        return self._ask("query", {"query": expression})

    def query_range(self, expression: str, start: float, end: float, step: float) -> tuple[PrometheusSeries, ...]:
        """The values of every series from `start` to `end`, seconds since the epoch, each `step` seconds.

        Raises:
            SourceFailed: there is no answer, or it is an error.
        """
        span = {"start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:g}"}
        return self._ask("query_range", {"query": expression, **span})

    def _ask(self, what: str, fields: dict[str, str]) -> tuple[PrometheusSeries, ...]:
        request = urllib.request.Request(  # noqa: S310 - http or https, as __init__ has seen
            f"{self._base}/api/v1/{what}", data=urllib.parse.urlencode(fields).encode(), headers=self._headers()
        )
        text = self._whole(request, PATIENCE[what])
        if len(text) > LARGEST:
            raise SourceFailed(f"{self.title}: the answer is larger than {LARGEST >> 20} MiB.")
        if text.count(b"{") > MOST_OBJECTS or text.count(b"[") > MOST_LISTS:
            raise SourceFailed(f"{self.title}: the answer has more series than {MOST_OBJECTS // 20:,} GPUs have.")
        try:
            read = msgspec.json.decode(text, type=_Answer)
        except (msgspec.DecodeError, RecursionError):
            raise SourceFailed(f"{self.title}: the answer is not Prometheus'.", "Is the address right?") from None
        if read.status != "success" or read.data is None:
            raise SourceFailed(f"{self.title}: {printable(read.error)[:200] or 'the query failed'}.")
        return read.data.result

    def _whole(self, request: urllib.request.Request, patience: float) -> bytes:
        """What the server answers, all of it within `patience` seconds: each byte may come in time, and the last never.

        It is read on a thread, as headers may drip as well, where nobody can look at a clock between two reads.
        """
        if self._reading is not None and self._reading.is_alive():
            raise SourceFailed(f"{self.title}: its answer before this one still goes on.")
        until = time.monotonic() + patience
        answers: SimpleQueue[bytes | SourceFailed] = SimpleQueue()
        self._reading = threading.Thread(
            target=lambda: answers.put(self._read(request, until, patience)), name="read prometheus", daemon=True
        )
        self._reading.start()
        try:
            answer = answers.get(timeout=patience)
        except Empty:
            raise self._late(patience) from None
        self._reading = None  # it has answered, and ends
        if isinstance(answer, SourceFailed):
            raise answer
        return answer

    def _late(self, patience: float) -> SourceFailed:
        return SourceFailed(f"{self.title}: no whole answer within {patience:.0f} s.")

    def _read(self, request: urllib.request.Request, until: float, patience: float) -> bytes | SourceFailed:
        chunks, size = [], 0
        try:
            with self._opener.open(request, timeout=TIMEOUT) as answer:
                while size <= LARGEST and (piece := answer.read1(1 << 20)):
                    if time.monotonic() >= until:
                        return self._late(patience)
                    chunks.append(piece)
                    size += len(piece)
        except urllib.error.HTTPError as error:
            with error:
                return self._refused(error.code, error.read(1 << 16))
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            why = getattr(reason, "strerror", None) or str(reason)
            return SourceFailed(f"{self.title}: no answer: {printable(why).lower()[:200]}.")
        return b"".join(chunks)

    def _headers(self) -> dict[str, str]:
        if self._token_file is None:
            return {}
        try:
            token = self._token_file.read_text(encoding="ascii")[:LONGEST_TOKEN].strip()
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is no text"
            raise SourceFailed(f"{self._token_file} cannot be read: {why.lower()}.") from None
        if not token or not token.isprintable() or " " in token:
            raise SourceFailed(f"{self._token_file} holds no token.")
        return {"Authorization": f"Bearer {token}"}

    def _refused(self, code: int, body: bytes) -> SourceFailed:
        if code in (401, 403):
            return SourceFailed(f"{self.title} lets nobody in without a token (status {code}).", "See --token-file.")
        try:
            reason = msgspec.json.decode(body, type=_Answer).error
        except (msgspec.DecodeError, RecursionError):
            reason = ""
        return SourceFailed(f"{self.title}: {printable(reason)[:200] or f'status {code}'}.", "Is the address right?")


def is_loopback(name: str) -> bool:
    """Whether a name or address is this machine's own."""
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"
