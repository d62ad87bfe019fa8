"""What ssh says when it fails, as a sentence with what to do."""

from vramtui.core.base.errors import SourceFailed
from vramtui.core.base.text import printable

TOO_MANY = "too many at once"
_KNOWN = (
    (
        "permission denied",
        "cannot log in without a password",
        "Load a key (`ssh-add`), or open a connection that is shared (ControlPath): `ssh -fNM {host}`.",
    ),
    (
        "remote host identification has changed",
        "its key has changed: another machine may answer in its name",
        "Ask whoever runs it; only where it was set up anew: `ssh-keygen -R {host}`.",
    ),
    (
        "host key verification failed",
        "its key is not known here yet",
        "Connect once by hand, `ssh {host}`, and compare the key that it shows.",
    ),
    (
        "kex_exchange_identification",
        f"the server drops new connections: {TOO_MANY}",
        "Its MaxStartups says how many it takes.",
    ),
    ("could not resolve hostname", "cannot resolve host name", "Is the name right? See also ~/.ssh/config."),
    ("connection refused", "it refuses connections", "Does sshd run there?"),
    ("connection timed out", "it does not answer", ""),
    ("no route to host", "no route to host", ""),
    ("no gpu can be read here", "no GPU can be read there", "Run `vramtui doctor` or `nvidia-smi` on it."),
)
SHOWN = 200  # characters of what ssh said
NO_SHELL = 127


def failure_of(host: str, said: str, code: int | None) -> SourceFailed:
    """Why the connection to `host` ended.

    Args:
        host: as ssh was told of it.
        said: what came on its standard error.
        code: its exit status; None where it was ended from here.
    """
    lower = said.lower()
    for mark, sentence, hint in _KNOWN:
        if mark in lower:
            return SourceFailed(f"{host}: {sentence}.", hint.format(host=host))
    last = next((line for line in reversed(said.splitlines()) if line.strip()), "")
    if last:
        return SourceFailed(f"{host}: {printable(last.strip()[:SHOWN]).rstrip('.')}.")
    if code == NO_SHELL:
        return SourceFailed(f"{host}: there is no shell to run anything in.")
    return SourceFailed(f"{host}: the connection has ended" + (f" (status {code})." if code else "."))
