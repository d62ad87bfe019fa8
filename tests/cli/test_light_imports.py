"""What the dashboard does without when it starts is there for whoever asks for it later."""

import subprocess
import sys

PROGRAM = """
import sys
SHOWN = [*"abcxyz019", "slash", "question_mark", "left_square_bracket", "right_curly_bracket", "less_than_sign"]
SHOWN += ["space", "escape", "tab", "enter", "left", "pageup", "f9", "exclamation_mark", "section_sign", "minus"]
from vramtui.cli.light_imports import without_rare, without_unused
with without_rare():
    import urllib.parse
with without_unused():
    import msgspec
    import textual.app
from textual.keys import format_key, key_to_character
absent = {"ipaddress", "typing_extensions", "textual.command", "textual.widgets._input", "ssl"} & set(sys.modules)
absent |= {"difflib", "locale", "unicodedata"} & set(sys.modules)
assert sys.version_info < (3, 11) or absent == set(), absent
assert urllib.parse.urlsplit("http://[::1]:9090/x").port == 9090
try:
    urllib.parse.urlsplit("http://[nowhere]:9090/x")
except ValueError as error:
    assert sys.version_info < (3, 11, 4) or "nowhere" in str(error), error
shown = {key: (key_to_character(key), format_key(key)) for key in SHOWN}
import difflib, locale, unicodedata
key_to_character.cache_clear()
format_key.cache_clear()
import textual.keys
textual.keys.unicodedata = unicodedata
assert shown == {key: (key_to_character(key), format_key(key)) for key in SHOWN}, shown
import textual.suggestions
assert textual.suggestions.get_suggestions("widht", ["width"], 1) == ["width"]
assert unicodedata.lookup("SECTION SIGN") == chr(167)
import ipaddress, platformdirs, ssl, textual.command, typing_extensions
assert ipaddress.ip_address("::1").is_loopback
assert textual.command.CommandPalette.__bases__ != (object,)
assert typing_extensions.Sentinel and platformdirs.user_config_path and ssl.SSLContext
"""


def test_what_is_left_out_is_there_for_whoever_needs_it() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
