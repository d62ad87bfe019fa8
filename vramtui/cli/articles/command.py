"""`vramtui articles`: every statement of five articles on GPU memory, as printed and as computed."""

import sys
from typing import Annotated

import typer

from vramtui.cli.common.console import print_json
from vramtui.cli.common.exit_codes import exit_on_user_error


def articles(
    article: Annotated[str | None, typer.Argument(metavar="[ARTICLE]", help="One article: 000 to 004.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document, bytes as integers.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="The page that stands in docs/articles.md.")] = False,
) -> None:
    """Five articles on GPU memory, statement by statement: as printed, as computed, and why they differ.

    Each figure is computed from a preset at this moment; none is stored as a result. A statement without a figure
    names the command that shows it.
    """
    with exit_on_user_error():
        from vramtui.cli.articles import text  # noqa: PLC0415 - only here
        from vramtui.cli.articles.statements import answer, statements  # noqa: PLC0415 - loads the estimators
        from vramtui.core.estimate.devices import ARTICLE_CARD, card  # noqa: PLC0415 - as above
        from vramtui.presets.library import PresetLibrary  # noqa: PLC0415 - as above

        library = PresetLibrary()
        answers = tuple(answer(one, library, card(ARTICLE_CARD)) for one in statements(article))
        if json:
            print_json(text.document(answers))
        elif markdown:
            sys.stdout.write(text.markdown(answers))
        else:
            sys.stdout.write(text.plain(answers))
