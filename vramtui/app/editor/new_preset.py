"""New drafts: from a model's file, a training file, a process, or a copy of the draft."""

from collections.abc import Callable
from pathlib import PurePath

from textual.screen import Screen

from vramtui.app.editor.dialogs import Ask, Offers, Pick
from vramtui.app.editor.open_draft import OpenDraft
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


def ask_for_new(screen: Screen[None], opened: OpenDraft) -> None:
    """Ask what a new preset begins with, and edit that."""
    running, name = opened.host.running(), opened.draft.name
    lines = [
        ("a model", "a file, a folder, or a name in the local caches"),
        ("a copy", f"of {name}, with its changes"),
        ("a training file", "YAML or JSON of accelerate, DeepSpeed, axolotl …"),
    ]
    if running is not None:
        lines.append((f"pid {running[0]}", running[1]))
    text = opened.draft.text

    def begin(at: int) -> None:
        if at == 0:
            prompt = "Path of config.json, *.safetensors, *.gguf or a folder;"
            prompt += " or a downloaded model, as meta-llama/Llama-3.1-8B:"
            check = _checked(opened, lambda path: draft_from_model(path.strip(), try_out=opened.estimator))
            screen.app.push_screen(Ask("A new preset from a model's file", prompt, "", check))
        elif at == 1:
            check = _checked(opened, lambda copy: Draft(text, checked_name(copy), try_out=opened.estimator))
            screen.app.push_screen(Ask("A new preset as a copy", f"Name of the copy of {name}:", f"{name}-copy", check))
        elif at == 2:
            _ask_for_file(screen, opened)
        elif running is not None:
            pid, command = running
            files, notes = files_of(command, finder_of(pid, command))
            offers = draft_from_process(command, opened.host.known_presets, files)
            _offer(screen, opened, f"A new preset from pid {pid}", f"pid-{pid}", offers, notes)

    ask(screen.app, Pick("A new preset from", lines), begin)


def _checked(opened: OpenDraft, make: Callable[[str], Draft]) -> Callable[[str], str]:
    """Return a function that edits the draft `make` returns; it returns the sentence of an error."""

    def check(typed: str) -> str:
        try:
            draft = make(typed)
        except (UserError, OSError, RuntimeError) as error:
            return str(error)
        opened.begin(draft)
        return ""

    return check


def _ask_for_file(screen: Screen[None], opened: OpenDraft) -> None:
    read: list[JobFile] = []

    def check(path: str) -> str:
        try:
            read[:] = [read_job_file(path_named(path))]
        except (UserError, RuntimeError) as error:
            return str(error)
        return ""

    def offer(_: str) -> None:
        file = read[0]
        name = PurePath(file.name).stem
        offers = draft_from_file(file, opened.host.known_presets)
        title = f"A new preset from {file.name} ({TITLES[file.kind]})"
        notes = tuple(filter(None, [not_read(file)]))
        _offer(screen, opened, title, name if NAME.fullmatch(name) else "job", offers, notes)

    prompt = f"Path of a YAML or JSON file of {', '.join(sorted(TITLES.values(), key=str.lower))}:"
    ask(screen.app, Ask("A new preset from a training file", prompt, "", check), offer)


def _offer(
    screen: Screen[None], opened: OpenDraft, title: str, name: str, offers: tuple[Offer, ...], notes: tuple[str, ...]
) -> None:
    library = opened.host.known_presets
    if not offers:
        message = " ".join(("It has nothing that a preset could use.", *notes))
        screen.notify(printable(message), title=title, markup=False)
        return

    def check(typed: str, taken: tuple[Offer, ...]) -> str:
        make = _checked(opened, lambda one: start_from(taken, library, checked_name(one), try_out=opened.estimator))
        return make(typed)

    screen.app.push_screen(Offers(title, name, offers, check, notes))
