import re

from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

_RANDOM = re.compile(r"terminal-\d+-")


class SvgExtension(SingleFileSnapshotExtension):
    """One `.svg` a picture. Textual puts a random number into every id of a picture; it is taken out."""

    file_extension = "svg"
    _write_mode = WriteMode.TEXT

    def serialize(self, data: object, **_: object) -> str:
        return _RANDOM.sub("terminal-", str(data))
