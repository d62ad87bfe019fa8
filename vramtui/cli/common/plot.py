"""What every drawing of the command line shares: one plotext figure, its size, its colours, and its text."""

from typing import Any


def drawing(title: str, width: int, height: int, *, colour: bool) -> Any:  # noqa: ANN401 - plotext has no types
    """An empty plotext figure of `width` columns and `height` rows under `title`, however low the terminal is."""
    import plotext  # 0.4 s to load, so only where something is drawn

    plotext.terminal.limit(width=False, height=False)
    figure = plotext.figure
    figure.clear()
    figure.theme("default" if colour else "colorless")
    figure.plot_size(width, height)
    figure.title(title)
    return figure


def finished(figure: Any, *, colour: bool) -> str:  # noqa: ANN401 - as above
    """The figure as text, without a line's trailing spaces."""
    import plotext

    text = str(figure.build().string())
    plain = text if colour else str(plotext.uncolorize(text))
    return "\n".join(line.rstrip() for line in plain.splitlines())
