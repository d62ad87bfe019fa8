"""New drafts: from a model's file, from what a process was started with, or from the draft itself."""

from functools import partial
from pathlib import PurePath

from textual.screen import Screen

from vramtui.app.editor.dialogs import Ask, Offers, Pick
from vramtui.app.editor.open_draft import EditorHost, OpenDraft
from vramtui.app.ui.dialog import ask
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.models.named_files import path_named
from vramtui.presets.draft.creation import NAME, checked_name
from vramtui.presets.draft.draft import Draft, draft_from_model
from vramtui.presets.importers.file_keys import TITLES
from vramtui.presets.importers.file_offers import Offer, files_of, not_read
from vramtui.presets.importers.job_files import JobFile, read_job_file
from vramtui.presets.importers.process_files import finder_of
from vramtui.presets.importers.process_offers import draft_from_file, draft_from_process, start_from


class NewPreset:
    """Asks what to begin with, and lets the editor begin with it.

    Args:
        screen: asks and tells.
        opened: what gets the new draft.
        host: knows the presets and the chosen process.
    """

    def __init__(self, screen: Screen[None], opened: OpenDraft, host: EditorHost) -> None:
        self._screen = screen
        self._open = opened
        self._host = host

    def ask(self) -> None:
        running = self._host.running()
        lines = [
            ("a model", "a file, a folder, or a name in the local caches"),
            ("a copy", f"of {self._open.draft.name} as it stands here"),
            ("a training file", "YAML or JSON of accelerate, DeepSpeed, axolotl …"),
        ]
        begins = [self._from_model, self._as_copy, self._from_file]
        if running is not None:
            lines.append((f"pid {running[0]}", running[1]))
            begins.append(partial(self._from_process, *running))
        ask(self._screen.app, Pick("A new preset from", lines), lambda at: begins[at]())

    def _from_model(self) -> None:
        def check(path: str) -> str:
            try:
                draft = draft_from_model(path.strip(), try_out=self._open.estimator)
            except (UserError, OSError, RuntimeError) as error:
                return str(error)
            self._open.begin(draft)
            return ""

        prompt = (
            "Path of config.json, *.safetensors, *.gguf or a folder; or a downloaded model, as meta-llama/Llama-3.1-8B:"
        )
        self._screen.app.push_screen(Ask("A new preset from a model's file", prompt, "", check))

    def _as_copy(self) -> None:
        text = self._open.draft.text

        def check(name: str) -> str:
            try:
                draft = Draft(text, checked_name(name), try_out=self._open.estimator)
            except UserError as error:
                return str(error)
            self._open.begin(draft)
            return ""

        prompt = f"Name of the copy of {self._open.draft.name}:"
        self._screen.app.push_screen(Ask("A new preset as a copy", prompt, f"{self._open.draft.name}-copy", check))

    def _from_file(self) -> None:
        read: list[JobFile] = []

        def check(path: str) -> str:
            try:
                read[:] = [read_job_file(path_named(path))]
            except (UserError, RuntimeError) as error:
                return str(error)
            return ""

        prompt = f"Path of a YAML or JSON file of {', '.join(sorted(TITLES.values(), key=str.lower))}:"
        window = Ask("A new preset from a training file", prompt, "", check)
        ask(self._screen.app, window, lambda _: self._from_job_file(read[0]))

    def _from_job_file(self, file: JobFile) -> None:
        name = PurePath(file.name).stem
        preset_name = name if NAME.fullmatch(name) else "job"
        offers = draft_from_file(file, self._host.known_presets)
        title = f"A new preset from {file.name} ({TITLES[file.kind]})"
        self._offer(title, preset_name, offers, tuple(filter(None, [not_read(file)])))

    def _from_process(self, pid: int, command: str) -> None:
        files, notes = files_of(command, finder_of(pid, command))
        offers = draft_from_process(command, self._host.known_presets, files)
        self._offer(f"A new preset from pid {pid}", f"pid-{pid}", offers, notes)

    def _offer(self, title: str, name: str, offers: tuple[Offer, ...], notes: tuple[str, ...]) -> None:
        library = self._host.known_presets
        if not offers:
            message = " ".join(("It has nothing that a preset could use.", *notes))
            self._screen.notify(printable(message), title=title, markup=False)
            return

        def check(name: str, taken: tuple[Offer, ...]) -> str:
            try:
                draft = start_from(taken, library, checked_name(name), try_out=self._open.estimator)
            except UserError as error:
                return str(error)
            self._open.begin(draft)
            return ""

        self._screen.app.push_screen(Offers(title, name, offers, check, notes))
