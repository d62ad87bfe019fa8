"""Prometheus' HTTP query API (stable since 2.0): instant and range queries; a token only where nobody reads along."""

import http.client
import ssl
import urllib.error
import urllib.parse
import urllib.request
from ipaddress import ip_address
from pathlib import Path

import msgspec

from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.core.base.text import printable

TIMEOUT = 10.0  # seconds
LARGEST = 256 << 20  # bytes of an answer: a past of 15 minutes of 10,000 GPUs is 100 MiB
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
        """None: the redirect is the answer."""


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
        try:
            with self._opener.open(request, timeout=TIMEOUT) as answer:
                text = answer.read(LARGEST + 1)
        except urllib.error.HTTPError as error:
            with error:
                raise self._refused(error.code, error.read(1 << 16)) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            why = getattr(reason, "strerror", None) or str(reason)
            raise SourceFailed(f"{self.title}: no answer: {printable(why).lower()[:200]}.") from None
        if len(text) > LARGEST:
            raise SourceFailed(f"{self.title}: the answer is larger than {LARGEST >> 20} MiB.")
        try:
            read = msgspec.json.decode(text, type=_Answer)
        except (msgspec.DecodeError, RecursionError):
            raise SourceFailed(f"{self.title}: the answer is not Prometheus'.", "Is the address right?") from None
        if read.status != "success" or read.data is None:
            raise SourceFailed(f"{self.title}: {printable(read.error)[:200] or 'the query failed'}.")
        return read.data.result

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
            said = msgspec.json.decode(body, type=_Answer).error
        except (msgspec.DecodeError, RecursionError):
            said = ""
        return SourceFailed(f"{self.title}: {printable(said)[:200] or f'status {code}'}.", "Is the address right?")


def is_loopback(name: str) -> bool:
    """Whether a name or address is this machine's own."""
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"
