"""How what an extra brings is installed where this program lies: an environment of `uv tool` or pipx has no pip."""

import shlex
import sys


def install_hint(extra: str) -> str:
    """The command that brings `vramtui[extra]`, for the environment of this very program and no other."""
    wanted = f"'vramtui[{extra}]'"
    if "/uv/tools/" in sys.prefix:
        return f"uv tool install {wanted}"
    if "/pipx/venvs/" in sys.prefix:
        return f"pipx inject vramtui {wanted}"
    return f"{shlex.quote(sys.executable)} -m pip install {wanted}"
