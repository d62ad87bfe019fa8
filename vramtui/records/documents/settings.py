"""The documents of what a person has set up: `presets list` and `config show`; and of an error."""

import msgspec

from vramtui.core.schema.settings import Settings


class ListedPreset(msgspec.Struct, frozen=True, kw_only=True):
    """One preset and its file."""

    name: str
    title: str
    path: str
    bundled: bool
    model_kind: str
    run_kind: str


class PresetsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What `vramtui presets list --json` prints."""

    schema: int
    presets: tuple[ListedPreset, ...]


class SettingsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What `vramtui config show --json` prints: every setting as it holds, and the file, which need not exist.

    Attributes:
        environment: the settings that a variable gives, and its name.
    """

    schema: int
    path: str
    exists: bool
    environment: dict[str, str]
    settings: Settings


class ErrorDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What every command with `--json` prints on standard error, in one line, where it cannot answer.

    Attributes:
        error: the sentence.
        exit: the exit code.
    """

    schema: int
    error: str
    exit: int
