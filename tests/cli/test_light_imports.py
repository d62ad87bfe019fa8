"""What the dashboard does without when it starts is there for whoever asks for it later."""

import subprocess
import sys

PROGRAM = """
import sys
from vramtui.cli.light_imports import without_rare, without_unused
with without_rare():
    import urllib.parse
with without_unused():
    import msgspec
    import textual.app
absent = {"ipaddress", "typing_extensions", "textual.command", "textual.widgets._input", "ssl"} & set(sys.modules)
assert sys.version_info < (3, 11) or absent == set(), absent
assert urllib.parse.urlsplit("http://[::1]:9090/x").port == 9090
try:
    urllib.parse.urlsplit("http://[nowhere]:9090/x")
except ValueError as error:
    assert sys.version_info < (3, 11, 4) or "nowhere" in str(error), error
import ipaddress, platformdirs, ssl, textual.command, typing_extensions
assert ipaddress.ip_address("::1").is_loopback
assert textual.command.CommandPalette.__bases__ != (object,)
assert typing_extensions.Sentinel and platformdirs.user_config_path and ssl.SSLContext
"""


def test_what_is_left_out_is_there_for_whoever_needs_it() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
