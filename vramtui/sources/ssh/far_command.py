"""What is asked of ssh, what runs at the far end (the best of three that is there), and what ssh says when it fails."""

from collections.abc import Sequence

from vramtui.core.base.errors import SourceFailed
from vramtui.core.base.text import printable
from vramtui.sources.nvidia_smi.source import FORMAT

CONNECT_LIMIT = 10  # seconds
OPTIONS = (
    "-T",
    "-oBatchMode=yes",  # whatever it would have to ask, it fails instead
    f"-oConnectTimeout={CONNECT_LIMIT}",
    "-oServerAliveInterval=5",
    "-oServerAliveCountMax=3",
    "-oClearAllForwardings=yes",
    "-oPermitLocalCommand=no",
    "-oRequestTTY=no",
)
# What may run the agent: on RHEL 8 python3 may be missing, and its own system tools have one.
PYTHONS = ("python3", *(f"python3.{minor}" for minor in range(13, 8, -1)), "/usr/libexec/platform-python")
OLDEST = "(3,6)"
# Why nvidia-smi is read after all: exit codes of the agent's Python, and those of the shell and of Python itself for
# one that does not start (a shim of pyenv's, or one so old that it does not know -I). After these the next one is
# tried: the agent still waits on standard input, which any other has read.
NO_PYTHON, TOO_OLD = 0, 9
NOT_STARTED = (2, 126, 127)
SMI_MARK = "vramtui-smi 1"
GPU_COLUMNS = (
    "index,uuid,pci.bus_id,driver_version,memory.total,memory.used,memory.free,memory.reserved,utilization.gpu,"
    "utilization.memory,power.draw,enforced.power.limit,temperature.gpu,clocks.sm,clocks.mem,fan.speed,"
    "pcie.link.gen.current,pcie.link.width.current,ecc.errors.uncorrected.volatile.total,"
    "clocks_throttle_reasons.active,compute_cap,mig.mode.current,name"
)
OLD_COLUMNS = "index,uuid,pci.bus_id,driver_version,memory.total,memory.used,memory.free,utilization.gpu,name"


def ssh_arguments(host: str, interval: float, agent_size: int) -> Sequence[str]:
    """The whole command for one host. Its name is an argument of its own after `--`, never part of a shell's text."""
    return ("ssh", *OPTIONS, "--", host, far_command(interval, agent_size))


def far_command(interval: float, agent_size: int) -> str:
    """What the far host's login shell is given, whichever that is: one word in single quotes for `sh`.

    First a vramtui that is installed there; then the agent, of `agent_size` bytes on standard input, by the first
    Python that can run it; then nvidia-smi and ps in one loop that runs as long as somebody reads, whose first line
    says why. Each ends with the connection.
    """
    seconds = f"{interval:g}"
    program = f"import sys;sys.version_info<{OLDEST}and sys.exit({TOO_OLD});exec(sys.stdin.buffer.read({agent_size}))"
    steps = (
        'PATH="$PATH:$HOME/.local/bin"',
        f"vramtui record - --interval {seconds} </dev/null 2>/dev/null && exit 0",
        f'w="{NO_PYTHON}"; for p in {" ".join(PYTHONS)}',
        "do command -v $p >/dev/null || continue",
        f'$p -I -S -c "{program}" 2>/dev/null && exit 0; w=$?',
        f"case $w in {'|'.join(map(str, (*NOT_STARTED, TOO_OLD)))}) ;; *) break;; esac; done",
        "command -v nvidia-smi >/dev/null || { echo vramtui: no GPU can be read here >&2; exit 3; }",
        f"q={GPU_COLUMNS}",
        f"nvidia-smi --query-gpu=$q {FORMAT} >/dev/null 2>&1 || q={OLD_COLUMNS}",
        f'echo "{SMI_MARK} $w"',
        f"while echo @ $q && uname -n; do nvidia-smi --query-gpu=$q {FORMAT} 2>&1; echo @apps $?",
        f"a=$(nvidia-smi --query-compute-apps=pid,gpu_uuid,used_memory,process_name {FORMAT} 2>&1)",
        'echo "$a"; echo @ps',
        'p=$(echo "$a" | cut -d, -f1 | grep -x "[0-9]*" | paste -s -d, -)',
        '[ -z "$p" ] || LC_ALL=C TZ=UTC0 ps -ww -o pid=,user=,lstart=,args= -p "$p"',
        f"echo @end; sleep {seconds}; done",
    )
    return f"exec sh -c '{'; '.join(steps)}'"


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


def failure_of(host: str, errors: str, code: int | None) -> SourceFailed:
    """Why the connection to `host` ended.

    Args:
        host: as ssh was told of it.
        errors: what came on its standard error.
        code: its exit status; None where it was ended from here.
    """
    lower = errors.lower()
    for mark, sentence, hint in _KNOWN:
        if mark in lower:
            return SourceFailed(f"{host}: {sentence}.", hint.format(host=host))
    last = next((line for line in reversed(errors.splitlines()) if line.strip()), "")
    if last:
        return SourceFailed(f"{host}: {printable(last.strip()[:SHOWN]).rstrip('.')}.")
    if code == NO_SHELL:
        return SourceFailed(f"{host}: there is no shell to run anything in.")
    return SourceFailed(f"{host}: the connection has ended" + (f" (status {code})." if code else "."))
