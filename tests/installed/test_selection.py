"""The mark stays with the chosen process when the order or the filter changes, and the estimate follows the mark."""

import re

from tests.installed.conftest import Open

SORTED = re.compile(r"[A-Z]+[▴▾]")
MARKED = re.compile(r"▸\s+(\d{4})\s")


def test_the_mark_stays_and_the_panel_follows(open_terminal: Open) -> None:
    terminal = open_terminal("--demo")
    terminal.wait_for("Estimate · llama-3.1-8b-lora")
    terminal.wait(lambda screen: MARKED.findall(screen) == ["4213"], "the mark on 4213")
    terminal.send("j")
    terminal.wait(lambda screen: MARKED.findall(screen) == ["7044"], "the mark on the next row")
    terminal.send("k")  # a row that was chosen; until then the mark stays on the first one
    terminal.wait(lambda screen: MARKED.findall(screen) == ["4213"], "the mark on 4213 again")
    for keys in ("<", "o", ">>", ">", "o"):
        before = SORTED.findall(terminal.text)
        terminal.send(keys)
        # The head and the rows may arrive in two pieces, and between them the mark stands in two rows.
        terminal.wait(
            lambda screen, before=before: (  # type: ignore[misc]  # bound for this round
                SORTED.findall(screen) != before
                and MARKED.findall(screen) == ["4213"]
                and "Estimate · llama-3.1-8b-lora" in screen
            ),
            f"{keys!r} to sort, with the mark on 4213",
        )
    terminal.send("/gpu:1")
    terminal.wait(lambda screen: MARKED.findall(screen) == ["5120"], "the filter to leave one row")
    terminal.wait(lambda screen: "Estimate · qwen-2.5-7b" in screen, "the estimate to follow")
    terminal.send("\x1b")
    terminal.wait(lambda screen: "gpu:1" not in screen, "the filter to close")
    terminal.send("q")
    assert terminal.ended() == 0
