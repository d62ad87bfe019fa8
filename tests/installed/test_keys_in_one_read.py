"""Keys that come in one read, as they do over a slow line, go to what the first of them opens."""

from pathlib import Path

from tests.installed.conftest import Open

ESCAPE, PALETTE = "\x1b", "\x10"

# What is written at once, and what stands on the screen then. Other screens' keys: tests/app/test_key_queue.py.
BURSTS = (("/qqwen", "qqwen"), ("/user:root", "user:root"), ("pqqr", "qqr"), ("mqqr", "qqr"), (f"{PALETTE}qqr", "qqr"))


def test_every_opening_key_with_text_behind_it(open_terminal: Open, tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    terminal = open_terminal("--demo", "--preset", "llama-3.1-8b-lora", cwd=folder)
    terminal.wait_for("train")
    for burst, shown in BURSTS:
        assert shown not in terminal.text, terminal.text
        terminal.send(burst)
        terminal.wait(lambda screen, shown=shown: shown in screen, f"{burst!r} to arrive")  # type: ignore[misc]  # bound for this round
        assert terminal.process.poll() is None, burst
        terminal.send(ESCAPE)
        terminal.wait(lambda screen, shown=shown: shown not in screen, f"{burst!r} to be closed")  # type: ignore[misc]  # as above
    terminal.send(f"/qq{ESCAPE}pgpt")  # Esc and the key behind it, too
    terminal.wait(lambda screen: "│ gpt" in screen, "Esc and p to arrive")
    terminal.send(ESCAPE)
    terminal.wait(lambda screen: "│ gpt" not in screen, "the list to be closed")
    terminal.send("\x1b[200~qsrXq\x1b[201~/sq")  # text pasted outside an input does nothing
    terminal.wait_for("sq")
    assert terminal.process.poll() is None
    assert list(folder.iterdir()) == []
    terminal.send(f"{ESCAPE}")
    terminal.wait(lambda screen: "sq" not in screen, "the filter to close")
    terminal.send("q")
    assert terminal.ended() == 0
