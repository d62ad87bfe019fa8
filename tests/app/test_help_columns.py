"""The help: the panel that has the focus first, by task, in two columns where there is room."""

from tests.app.driver import climbing, dashboard, screen_text, settle


async def test_the_keys_stand_by_task_in_two_columns_where_there_is_room() -> None:
    """By task: what a person wants to do, not one long list of one screen."""
    async with dashboard(climbing(), (120, 60)) as (app, pilot):
        await pilot.press("question_mark")
        await settle(app, pilot)
        text = screen_text(app)
        for title in ("Rows", "Estimate", "Try a change", "Save, copy, signal", "Everywhere", "Mouse and palette"):
            assert title in text
        for size, columns in (((80, 24), 1), ((120, 35), 2), ((200, 50), 2)):
            await pilot.press("escape")
            await pilot.resize_terminal(*size)
            await pilot.press("question_mark")
            await settle(app, pilot)
            lines = screen_text(app).splitlines()
            focused = next(at for at, line in enumerate(lines) if "Process table (focused)" in line)
            first = next(line for line in lines[focused:] if "Up" in line)
            assert ("Last row" in first or "Page" in first) == (columns == 2)
