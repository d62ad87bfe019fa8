"""The keys of the whole dashboard; those of a panel stand with it. Each has an id, so all can be remapped."""

from textual.binding import Binding, BindingType

APP_BINDINGS: list[BindingType] = [
    Binding("question_mark", "help", "help", id="app.help", key_display="?", tooltip="Every key and what it does"),
    Binding("q", "quit", "quit", id="app.quit", tooltip="Leave; the terminal is as it was"),
    Binding("ctrl+c", "interrupt", "Quit", id="app.interrupt", show=False, priority=True),
    Binding("ctrl+t", "next_theme", "Next theme", id="app.theme", show=False),
    Binding("ctrl+l", "redraw", "Draw everything again", id="app.redraw", show=False),
]
