"""New drafts, and figures of a run for the one there is."""

import time
from functools import partial
from pathlib import Path, PurePath

from vramtui.app.editor.dialogs import Ask, Offers, Pick, QuestionDialog, QuestionOption
from vramtui.app.editor.draft_screen import DraftScreen
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_bytes
from vramtui.core.runs.run import Run
from vramtui.presets.draft.creation import NAME, checked_name
from vramtui.presets.draft.draft import Draft, draft_from_model
from vramtui.presets.importers.file_keys import TITLES
from vramtui.presets.importers.file_offers import Offer, files_of, not_read
from vramtui.presets.importers.job_files import JobFile, read_job_file
from vramtui.presets.importers.process_files import finder_of
from vramtui.presets.importers.process_offers import draft_from_file, draft_from_process, start_from
from vramtui.presets.measured import with_measured

UNKNOWN = "is not a key of"


class NewPreset(DraftScreen):
    """From a model's file, from what a process was started with, or from the draft itself."""

    def action_new(self) -> None:
        """Ask what to begin with."""
        self.ask(self._ask_beginning)

    def _ask_beginning(self) -> None:
        running = self.office.running()
        lines = [
            ("a model's file", "config.json, *.safetensors, *.gguf or a folder"),
            ("a copy", f"of {self.draft.name} as it stands here"),
            ("a training file", "YAML or JSON of accelerate, DeepSpeed, axolotl …"),
        ]
        begins = [self._from_model, self._as_copy, self._from_file]
        if running is not None:
            lines.append((f"pid {running[0]}", running[1]))
            begins.append(partial(self._from_process, *running))

        def chosen(at: int | None) -> None:
            if at is not None:
                begins[at]()

        self.app.push_screen(Pick("A new preset from", lines), chosen)

    def _from_model(self) -> None:
        def check(path: str) -> str:
            try:
                draft = draft_from_model(Path(path).expanduser(), try_out=self.judge)
            except (UserError, OSError) as error:
                return str(error)
            self.begin(draft)
            return ""

        prompt = "Path of config.json, a *.safetensors or *.gguf file, or a folder with them:"
        self.app.push_screen(Ask("A new preset from a model's file", prompt, "", check))

    def _as_copy(self) -> None:
        text = self.draft.text

        def check(name: str) -> str:
            try:
                draft = Draft.new(text, checked_name(name), try_out=self.judge)
            except UserError as error:
                return str(error)
            self.begin(draft)
            return ""

        prompt = f"Name of the copy of {self.draft.name}:"
        self.app.push_screen(Ask("A new preset as a copy", prompt, f"{self.draft.name}-copy", check))

    def _from_file(self) -> None:
        read: list[JobFile] = []

        def check(path: str) -> str:
            try:
                read[:] = [read_job_file(Path(path).expanduser())]
            except (UserError, RuntimeError) as error:
                return str(error)
            return ""

        def given(path: str | None) -> None:
            if path is not None:
                self._from_job_file(read[0])

        prompt = f"Path of a YAML or JSON file of {', '.join(sorted(TITLES.values(), key=str.lower))}:"
        self.app.push_screen(Ask("A new preset from a training file", prompt, "", check), given)

    def _from_job_file(self, file: JobFile) -> None:
        name = PurePath(file.name).stem
        said = name if NAME.fullmatch(name) else "job"
        offers = draft_from_file(file, self.office.known_presets)
        title = f"A new preset from {file.name} ({TITLES[file.kind]})"
        self._offer(title, said, offers, tuple(filter(None, [not_read(file)])))

    def _from_process(self, pid: int, command: str) -> None:
        files, notes = files_of(command, finder_of(pid, command))
        offers = draft_from_process(command, self.office.known_presets, files)
        self._offer(f"A new preset from pid {pid}", f"pid-{pid}", offers, notes)

    def _offer(self, title: str, name: str, offers: tuple[Offer, ...], notes: tuple[str, ...]) -> None:
        library = self.office.known_presets
        if not offers:
            said = " ".join(("It has nothing that a preset could use.", *notes))
            self.notify(printable(said), title=title, markup=False)
            return

        def check(name: str, taken: tuple[Offer, ...]) -> str:
            try:
                draft = start_from(taken, library, checked_name(name), try_out=self.judge)
            except UserError as error:
                return str(error)
            self.begin(draft)
            return ""

        self.app.push_screen(Offers(title, name, offers, check, notes))

    def ask_about_unknown(self, kind: str) -> None:
        """After another kind was chosen: whether the keys that it does not have are taken out."""
        keys = [problem.key for problem in self.draft.problems if UNKNOWN in problem.sentence]
        if not keys:
            return

        def answered(key: str | None) -> None:
            if key == "y":
                self.draft.edits.drop_unknown()
                self.refresh_all()

        question = f"Of {kind}, these are not keys of that kind: {', '.join(keys)}. Ctrl+Z restores them."
        self.app.push_screen(QuestionDialog("Another kind", question, (QuestionOption("y", "remove them"),)), answered)

    # --- measured ------------------------------------------------------------------------------------------------

    def action_measured(self) -> None:
        """Take a run's figures; which one is asked where there are several."""
        runs = self.office.runs_of(self.draft.name)
        if not runs:
            name = printable(self.draft.name)
            self.notify(f"No run of {name} is known: select its process, or open History (4) first.", markup=False)
            return
        if len(runs) == 1:
            self._measure(runs[0])
            return

        def chosen(at: int | None) -> None:
            if at is not None:
                self._measure(runs[at])

        self.app.push_screen(Pick("Which run's figures?", [(_name(run), _figures(run)) for run in runs]), chosen)

    def _measure(self, run: Run, *, anyway: bool = False) -> None:
        try:
            text = with_measured(self.draft.text, run, self.draft.folder, anyway=anyway)
        except UserError as error:
            self._doubted(run, str(error), anyway=anyway)
            return
        self.draft.edits.end_step()
        self.draft.edits.set_text(text)
        self.draft.edits.end_step()
        self.refresh_all()
        self.form.go_to("measured.process")
        self.notify(f"[measured] has the figures of {_name(run)}; ctrl+s saves them.", markup=False)

    def _doubted(self, run: Run, why: str, *, anyway: bool) -> None:
        if anyway or run.observed.process is None:
            self.notify(why[:1].upper() + why[1:], severity="warning", markup=False)
            return

        def answered(key: str | None) -> None:
            if key == "y":
                self._measure(run, anyway=True)

        question = f"{why[:1].upper()}{why[1:]}. Write its figures anyway?"
        self.app.push_screen(QuestionDialog(_name(run), question, (QuestionOption("y", "write them"),)), answered)


def _name(run: Run) -> str:
    at = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.started_at))
    return f"pid {run.pid} on {printable(run.host)}, {at}"


def _figures(run: Run) -> str:
    process = format_bytes(run.observed.process) if run.observed.process is not None else "not measured"
    return f"{run.ending.replace('_', ' ')} · {run.gpu_name} · process {process}"
