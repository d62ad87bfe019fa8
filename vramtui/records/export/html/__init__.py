"""A snapshot as one web page that needs nothing else: no network, no script; good on paper and on a telephone."""

from vramtui.records.export.html.page import html_page

__all__ = ["html_page"]
