"""One SVG that shows several pictures of the screen after each other, by CSS alone: web pages play it in an `<img>`.

What two pictures have in common is in it once. Each shape is visible in the pictures that it is in.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from vramtui.app.export.portable_svg import FONTS

_RULE = re.compile(r"\.(terminal-r\d+) \{ (.*?) \}")
_SIZE = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')
_GROUP = re.compile(
    r'<g transform="translate\(([\d.]+), ([\d.]+)\)" clip-path="url\(#terminal-clip-terminal\)">(.*)</g>', re.DOTALL
)
_SHAPE = re.compile(r"<rect [^>]*/>|<text [^>]*>[^<]*</text>")
_CLASS = re.compile(r'class="(terminal-r\d+)"')
_NUMBER = re.compile(r'(?<==")(\d+\.\d+)(?=")')
_RECTANGLE = re.compile(r"<rect [^>]*/>")
_ATTRIBUTE = re.compile(r'([\w-]+)="([^"]*)"')
_EDGES = ' shape-rendering="crispEdges"'


class Moment(NamedTuple):
    """One picture, as SVG, and how many seconds it is shown."""

    svg: str
    seconds: float


def moving(moments: Sequence[Moment], background: str) -> str:
    """The pictures after each other, without end; all of one size."""
    width, height = _SIZE.findall(moments[0].svg)[0]
    styles: dict[str, str] = {}
    shapes: dict[str, set[int]] = {}
    for number, moment in enumerate(moments):
        for shape in _shapes(moment.svg, styles):
            shapes.setdefault(shape, set()).add(number)
    by_times: dict[tuple[int, ...], list[str]] = {}
    for shape, numbers in shapes.items():
        by_times.setdefault(tuple(sorted(numbers)), []).append(shape)
    left, top = _GROUP.findall(moments[0].svg)[0][:2]
    rules = [f"text{{{FONTS}font-size:20px;white-space:pre}}path{{shape-rendering:crispEdges}}"]
    rules += [f".{name}{{{rule}}}" for rule, name in styles.items()]
    whole = sum(moment.seconds for moment in moments)
    behind, before = [], []
    for at, (times, group) in enumerate(by_times.items()):
        if len(times) < len(moments):
            rules.append(f"@keyframes k{at}{{{_frames(moments, times, whole)}}}")
            # What plays no animation shows the first picture.
            still = "" if 0 in times else ";visibility:hidden"
            rules.append(f".k{at}{{animation:k{at} {whole:g}s step-end infinite{still}}}")
        mark = "" if len(times) == len(moments) else f' class="k{at}"'
        behind.append(f"<g{mark}>{_merged(shape for shape in group if ' fill=' in shape)}</g>")
        before.append(f"<g{mark}>{_merged(shape for shape in group if ' fill=' not in shape)}</g>")
    return (
        f'<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg"><style>{"".join(rules)}</style>'
        f'<rect width="{width}" height="{height}" rx="8" fill="{background}"/>'
        f'<g transform="translate({left},{top})">{"".join(behind)}{"".join(before)}</g></svg>\n'
    )


def _shapes(svg: str, styles: dict[str, str]) -> Iterator[str]:
    """The shapes of one picture, with classes that mean the same in all of them."""
    rules = dict(_RULE.findall(svg))
    for shape in _SHAPE.findall(_GROUP.findall(svg)[0][2]):
        short = _CLASS.sub(lambda found: f'class="{styles.setdefault(rules[found[1]], f"c{len(styles)}")}"', shape)
        yield _NUMBER.sub(lambda found: f"{float(found[1]):.1f}".removesuffix(".0"), short.replace(_EDGES, ""))


def _merged(shapes: Iterable[str]) -> str:
    """Rectangles of one style as one path, and the texts."""
    paths: dict[str, str] = {}
    texts = ""
    for shape in shapes:
        found = _RECTANGLE.fullmatch(shape)
        if found is None:
            texts += shape
            continue
        size = dict(_ATTRIBUTE.findall(shape))
        x, y, wide, tall = (size.pop(name) for name in ("x", "y", "width", "height"))
        style = " ".join(f'{name}="{value}"' for name, value in size.items())
        paths[style] = paths.get(style, "") + f"M{x} {y}h{wide}v{tall}h-{wide}z"
    return "".join(f'<path {style} d="{path}"/>' for style, path in paths.items()) + texts


def _frames(moments: Sequence[Moment], numbers: Sequence[int], whole: float) -> str:
    """When a shape is to be seen, of the pictures called by these numbers."""
    begun, said = 0.0, ""
    for number, moment in enumerate(moments):
        if number == 0 or (number in numbers) != (number - 1 in numbers):
            state = "visible" if number in numbers else "hidden"
            said += f"{100 * begun / whole:.2f}%{{visibility:{state}}}"
        begun += moment.seconds
    return said
