"""Who may see the dashboard in a browser. Any page that a browser shows can call a loopback port, so that loopback
alone keeps nobody out.

A request has to name this server (`Host`, so that no foreign name that was made to mean 127.0.0.1 gets in), to bear the
cookie that the token of this start was exchanged for, and, for a websocket, to come from a page of this very server
(`Origin`, which browsers set and pages cannot).
"""

import secrets
from collections.abc import Mapping
from urllib.parse import urlsplit

LOOPBACK = ("localhost", "127.0.0.1", "::1")
LONGEST = 256  # characters of a token or cookie that is looked at

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self';"
        " img-src 'self' data:; font-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Access:
    """Tokens and checks of one start of the server.

    Args:
        names: under which this server is called, beside those of loopback.
        port: the server's; a browser keeps the cookies of all ports of a host together.

    Attributes:
        token: what the address that is printed ends with.
        cookie: the name of the cookie.
        session: its value.
    """

    def __init__(self, names: tuple[str, ...], port: int) -> None:
        self.token = secrets.token_urlsafe(32)
        self.session = secrets.token_urlsafe(32)
        self.cookie = f"vramtui-{port}"
        self._names = frozenset(name.strip("[]").lower() for name in (*LOOPBACK, *names))

    def is_token(self, text: str | None) -> bool:
        """Whether that is the token; how long the answer takes tells nothing of it."""
        return _same(text, self.token)

    def is_session(self, text: str | None) -> bool:
        """Whether that is the cookie's value."""
        return _same(text, self.session)

    def is_ours(self, headers: Mapping[str, str]) -> bool:
        """Whether a request names this server. The port is not looked at: it may have been forwarded."""
        try:
            return (urlsplit(f"//{headers.get('Host', '')}").hostname or "") in self._names
        except ValueError:
            return False

    def is_own_page(self, headers: Mapping[str, str], scheme: str) -> bool:
        """Whether a websocket is asked for by a page of this server."""
        return headers.get("Origin") == f"{scheme}://{headers.get('Host', '')}"


def _same(text: str | None, wanted: str) -> bool:
    if not text or len(text) > LONGEST:
        return False
    return secrets.compare_digest(text.encode(errors="replace"), wanted.encode())  # a header may hold any byte
