"""PNG from SVG, by whatever on this machine draws one: librsvg, Inkscape or a browser."""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from vramtui.core.base.errors import UserError
from vramtui.core.observation.snapshot import Snapshot

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
RENDERERS = ("rsvg-convert", "inkscape", *BROWSERS)
PATIENCE = 60.0  # seconds


def png_of(svg: str, path: Path) -> None:
    """Draw `svg` into a new file at `path`.

    Raises:
        UserError: nothing here draws it, or what does fails.
    """
    renderer = next((name for name in RENDERERS if shutil.which(name)), None)
    if renderer is None:
        raise UserError(f"a PNG needs one of {', '.join(RENDERERS)} on this machine; the SVG needs none")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "picture.svg"
        source.write_text(svg, encoding="utf-8")
        try:
            subprocess.run(_command(renderer, source, path, svg), check=True, capture_output=True, timeout=PATIENCE)  # noqa: S603 - a list, from our own table
        except (OSError, subprocess.SubprocessError) as error:
            raise UserError(f"{renderer} could not draw the PNG: {error}") from None
    if not path.exists():
        raise UserError(f"{renderer} did not draw the PNG")


def save_drawn(snapshot: Snapshot, folder: Path, formats: Sequence[str], svg: str | None) -> list[Path]:
    """`save_snapshot`, and the picture as PNG where that is among the formats; the paths of what was written.

    Raises:
        UserError: something cannot be written. Where only the PNG cannot, it says what is written all the same, the SVG
            among it.
    """
    from vramtui.records import save_snapshot

    if "png" not in formats or svg is None:
        return save_snapshot(snapshot, folder, formats, svg=svg)
    kinds = dict.fromkeys([*(kind for kind in formats if kind != "png"), "svg"])
    paths = save_snapshot(snapshot, folder, list(kinds), svg=svg)
    source = next(path for path in paths if path.suffix == ".svg")
    drawn = source.with_suffix(".png")
    try:
        png_of(svg, drawn)
    except UserError as error:
        raise UserError(f"{error}. Written: {', '.join(map(str, paths))}") from None
    if "svg" not in formats:
        source.unlink()
        paths.remove(source)
    return [*paths, drawn]


def _command(name: str, source: Path, path: Path, svg: str) -> list[str]:
    program = shutil.which(name) or name
    if name == "rsvg-convert":
        return [program, "--zoom=1.5", f"--output={path}", str(source)]
    if name == "inkscape":
        return [program, "--export-type=png", f"--export-filename={path}", str(source)]
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    wide, high = (round(float(side)) for side in box.groups()) if box is not None else (1200, 800)
    return [
        program,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--hide-scrollbars",
        f"--user-data-dir={source.parent}",
        f"--window-size={wide},{high}",
        "--force-device-scale-factor=1.5",
        f"--screenshot={path}",
        source.as_uri(),
    ]
