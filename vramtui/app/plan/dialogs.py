"""The dialogs of Plan: axes, card, preset to compare with, saving a variant, and the script on each card."""

import shlex
import threading
from collections.abc import Sequence
from contextlib import suppress
from itertools import groupby
from typing import Protocol

import msgspec
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from vramtui.app.context import AppContext, ask, why_no_preset
from vramtui.app.plan.model import AS_IN_FILE, CardAnswers, PlanModel
from vramtui.app.themes import FIT_COLOURS
from vramtui.app.ui.chooser import Ask, Chooser, Window, ranked
from vramtui.app.ui.lines import fit
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_bytes
from vramtui.core.estimate.devices import Device, chosen_device, emulation_note, group_of
from vramtui.core.observation.snapshot import device_of
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import Workload
from vramtui.dryrun.result import JobCommand
from vramtui.estimators.planner.card_table import FSDP_NOTE, LARGEST_TITLES, CardFit, can_share, known_cards
from vramtui.estimators.planner.planner import usual_key, with_values
from vramtui.presets.draft import checked_name, proposed_name, save_variant

USUAL, NOTHING = "/usual", "/nothing"
HERE = "this machine"
NO_CHANGES = "No single change found yet that frees memory."


class PlanDialogs:
    """Opens the dialogs; each changes the model or the state, and the screen is drawn again."""

    __slots__ = ("_app", "_model", "_redraw", "_state")

    def __init__(self, shared: AppContext, model: PlanModel) -> None:
        self._app, self._state, self._redraw = shared.app, shared.state, shared.redraw.now
        self._model = model

    def _has_axes(self) -> bool:
        if not self._model.axes:
            self._app.notify(why_no_preset(self._state))
        return bool(self._model.axes)

    def choose_axis(self, across: bool) -> None:
        """Ask what to vary along the columns or the rows."""
        model = self._model
        if not self._has_axes():
            return

        def span(labels: tuple[str, ...]) -> str:
            return ", ".join(labels) if len(labels) < 6 else f"{labels[0]}, {labels[1]} … {labels[-1]}"

        def on_choice(name: str) -> None:
            model.choose_axis(name, across=across)
            self._redraw()

        choices = [(axis.name, axis.name, f"{axis.title}: {span(axis.labels)}") for axis in model.axes]
        title = "Horizontal axis (columns)" if across else "Vertical axis (rows)"
        ask(self._app, PlanChooser(title, choices, model.names[0 if across else 1]), on_choice)

    def choose_card(self) -> None:
        """Show the cell's variant on every card, and ask for the card of the map."""
        model = self._model
        gpus = self._state.sample.gpus if self._state.sample is not None else ()
        rows = [CardRow(USUAL, HERE, "as on Watch", self._state.device())]
        rows += [
            CardRow(f"/{gpu.uuid}", HERE, f"GPU {gpu.index}, {printable(gpu.name)}", device_of(gpu))
            for gpu in gpus
            if gpu.memory.total is not None
        ]
        rows += [CardRow(card.name, group_of(card.name), card.name, card) for card in known_cards()]
        tables = model.ask_cards(self._state, tuple(dict.fromkeys(row.device for row in rows)))
        by_key = {row.key: row for row in rows}

        def on_choice(key: str | None) -> None:
            model.forget_cards()
            if key is not None:
                row = by_key[key]
                model.where, model.card = ("", None) if key == USUAL else (row.name, row.device)
                self._state.planned = model.card
            self._redraw()

        named = (row.key for row in rows if model.card is not None and row.name == model.where)
        self._app.push_screen(CardChooser(rows, tables, next(named, USUAL)), on_choice)
        self._redraw()

    def choose_second(self) -> None:
        model = self._model
        if not self._has_axes():
            return
        choices = [
            (NOTHING, "nothing", "no comparison"),
            (AS_IN_FILE, "its saved file", "compare the cell with this preset's saved values"),
        ]
        choices += [
            (preset_file.key, printable(preset_file.key), printable(preset_file.preset.name))
            for preset_file in sorted(self._state.session.presets.values(), key=lambda preset: preset.key)
            if preset_file.key != self._state.panel_key
        ]

        def on_choice(key: str) -> None:
            model.second = "" if key == NOTHING else key
            self._redraw()

        ask(self._app, PlanChooser("Compare with", choices, model.second or NOTHING), on_choice)

    def _variant(self) -> tuple[Workload, str] | None:
        """The workload under the cursor and its name; without one, notify the user why."""
        side = self._model.view(self._state).side
        if side is None:
            self._app.notify(why_no_preset(self._state))
        elif side.workload is None or side.estimate is None:
            reason = side.answer.reason if side.answer is not None else ""
            self._app.notify(f"{side.how} is not possible: {printable(reason)}", severity="warning")
        else:
            return side.workload, side.how
        return None

    def take_variant(self) -> None:
        """Show the cell's variant in Watch's panel."""
        chosen = self._variant()
        if chosen is not None:
            self._take(*chosen)

    def take_change(self) -> None:
        """Apply the selected change to the cell's variant, and show that in Watch's panel."""
        model = self._model
        side = model.view(self._state).side
        if side is not None and side.workload is not None and model.changes:
            change = model.changes[model.change]
            self._take(with_values(side.workload, change.changes), f"{side.how} · {change.mitigation}")
        elif self._variant() is not None:
            self._app.notify(NO_CHANGES)

    def _take(self, workload: Workload, how: str) -> None:
        self._state.put(workload)
        self._model.go_home()
        self._model.choose_change(None)
        self._app.notify(f"Watch estimates {how} now; u goes back to the file, w saves it.")
        self._redraw()

    def save_variant(self) -> None:
        """Ask for a name, and save the cell's variant as the user's own preset, in the background."""
        chosen, preset_file = self._variant(), self._state.panel_preset()
        if chosen is None or preset_file is None:
            return
        workload, how = chosen

        def saved(file: PresetFile) -> None:
            self._state.undo_steps()
            self._state.show_preset(file)
            message = f"{printable(file.path)}\nIt is the preset on the screen now; p lists it."
            self._app.notify(message, title="Saved as a preset")
            self._redraw()

        def save(name: str) -> None:
            try:
                self._app.call_later(saved, save_variant(preset_file, workload, name, how))
            except (UserError, OSError) as error:
                self._app.call_later(self._app.notify, str(error), title="Not saved", severity="error")

        def on_name(name: str) -> None:
            threading.Thread(target=save, args=(name,), name="save variant", daemon=True).start()

        about = f"{printable(preset_file.key)} with {how}, as your own preset; the original file is unchanged."
        name = proposed_name(preset_file, how)
        ask(self._app, Ask("Save this variant as a preset", about, name, checked_name), on_name)


class PlanChooser(Chooser):
    """Dismissed with the key of a choice, or None. Each choice is a key, a name and a description."""

    def __init__(self, title: str, choices: Sequence[tuple[str, str, str]], present: str) -> None:
        super().__init__(title)
        self._choices, self._present = choices, present

    def fill(self, wanted: str) -> None:
        """List the choices that contain every word; the cursor is on the present one until something is typed."""
        places = {identity: at for at, (identity, _, _) in enumerate(self._choices)}
        choices = ranked(wanted, self._choices, lambda one: (one[1], one[2]), lambda one: places[one[0]])
        width = max((len(name) for _, name, _ in self._choices), default=0) + 2
        options = [
            Option(Content.assemble((f"{name:<{width}}", "bold"), (about, "$muted")), identity)
            for identity, name, about in choices
        ]
        self.list_options(options, "nothing matches", None if wanted.strip() else self._present)


NAME, MEMORY, FIT, LARGEST, SHARED = 25, 10, 16, 11, 7
BF16_MARK = " · no bf16"
BF16_NOTE = "no bf16: emulated below compute capability 8.0, where no fused attention takes it and scores are kept"
REFRESH = 0.25  # seconds between two looks for new answers
Text = Content | str | tuple[str, str]


class CardRow(msgspec.Struct, frozen=True):
    """A card to choose, its name in the list, and its group there."""

    key: str
    group: str
    name: str
    device: Device


class CardChooser(Chooser):
    """Dismissed with a row's key, or None. `tables` are the jobs, each with its name and its answers so far."""

    def __init__(self, rows: Sequence[CardRow], tables: Sequence[tuple[str, CardAnswers]], present: str) -> None:
        super().__init__("Which card does it need?")
        self._rows, self._tables, self._present = rows, tables, present
        self._columns: dict[str, tuple[CardFit | None, ...]] = {}

    def inside(self) -> ComposeResult:
        """The filter, the heading of the columns, and the cards."""
        filter_line, cards = super().inside()
        yield filter_line
        columns, names = f"{'card':<{NAME}}{'memory':>{MEMORY}}", " " * (NAME + MEMORY)
        notes: list[str] = []
        for name, answers in self._visible_tables:
            shares = can_share(answers.workload)
            title = LARGEST_TITLES.get(usual_key(answers.workload), "largest")
            columns += f"  {'  spare':<{FIT - 2}}{title:>{LARGEST}}{'FSDP' if shares else '':>{SHARED}}"
            names += f"    {fit(name, FIT + LARGEST + SHARED - 4)}"
            notes = [FSDP_NOTE] if shares else notes
        notes += [BF16_NOTE] if any(self._lacks_bf16(row) for row in self._rows) else []
        notes += [names.rstrip()] if len(self._visible_tables) > 1 else []
        yield Static("\n".join([*notes, columns]), id="heading", markup=False)
        yield cards

    def on_mount(self) -> None:
        self.set_interval(REFRESH, self.fill_in)

    def fill(self, wanted: str) -> None:
        """List the cards that contain every word, under the names of their groups until one is typed."""
        places = {row.key: at for at, row in enumerate(self._rows)}
        choices = ranked(wanted, self._rows, lambda row: (row.name, row.group), lambda row: places[row.key])
        options: list[Option] = []
        self._columns = {}
        for group, rows in groupby(choices, lambda row: row.group):
            if not wanted.strip():
                options.append(Option(Content.styled(group, "$primary"), disabled=True))
            for row in rows:
                self._columns[row.key] = self._answers(row)
                options.append(Option(self._line(row, self._columns[row.key]), row.key))
        self.list_options(options, "nothing matches", None if wanted.strip() else self._present)

    @property
    def is_whole(self) -> bool:
        """Return whether every job has its answer on every card."""
        return all(answers.is_whole for _, answers in self._tables)

    def fill_in(self) -> None:
        shown = self.query_one(OptionList)
        for row in self._rows:
            now = self._answers(row)
            if row.key in self._columns and now != self._columns[row.key]:
                self._columns[row.key] = now
                shown.replace_option_prompt(row.key, self._line(row, now))

    @property
    def _visible_tables(self) -> Sequence[tuple[str, CardAnswers]]:
        return self._tables[: max(1, (self.room(116) - NAME - MEMORY) // (FIT + LARGEST + SHARED))]

    def _answers(self, row: CardRow) -> tuple[CardFit | None, ...]:
        return tuple(answers.fits.get(row.device) for _, answers in self._visible_tables)

    def _lacks_bf16(self, row: CardRow) -> bool:
        return any(emulation_note(answers.workload, row.device) for _, answers in self._tables)

    def _line(self, row: CardRow, answers: Sequence[CardFit | None]) -> Content:
        memory = format_bytes(row.device.total_memory)
        pieces: list[Text] = [
            (fit(row.name + (BF16_MARK if self._lacks_bf16(row) else ""), NAME - 1).ljust(NAME), "bold"),
            f"{memory:>{MEMORY}}",
        ]
        for answer in answers:
            if answer is None or answer.fit is None:
                words = "…" if answer is None else answer.spare_label
                pieces.append((f"  {words}".ljust(FIT + LARGEST + SHARED), "$muted"))
                continue
            pieces += [
                (f"  {answer.spare_label:<{FIT - 2}}", f"${FIT_COLOURS[answer.fit.verdict]}"),
                f"{answer.largest_label:>{LARGEST}}",
                (f"{answer.fsdp_label:>{SHARED}}", "$muted"),
            ]
        return Content.assemble(*pieces)


USUAL_CARDS = "RTX4090, L40S, A100-80GB, H100"
STEPS = 3
ABOUT = (
    "Runs three steps of it on a simulated GPU of each kind, as `vramtui dry-run` does. What it writes is thrown away, "
    "and it reaches no network."
)
NO_RUNNER = "Nothing can be run here."
CARD_NAME, SIZE = 16, 11


class CardRun(msgspec.Struct, frozen=True, kw_only=True):
    """Result on one card: peaks of the job's largest process, and the card's memory, in bytes; None is unknown."""

    card: str
    allocated: int | None
    reserved: int | None
    process: int | None
    memory: int
    verdict: str


class CardRunner(Protocol):
    """Makes a dry run of a command, in a process of its own."""

    def command_of(self, pid: int, command: str) -> JobCommand:
        """The command of the process `pid` of this machine; raises UserError if it has no Python script."""

    def run(
        self, words: Sequence[str], job: JobCommand | None, device: Device, cancel: threading.Event
    ) -> CardRun | None:
        """Result of `words` in the folder and with the variables of `job`; None when `cancel` was set."""


def ask_cards(shared: AppContext, runner: CardRunner | None) -> None:
    """Open the window that asks for the command and the cards; the selected process's command is proposed.

    Without a runner, notify the user that nothing can be run.
    """
    if runner is None:
        shared.app.notify(NO_RUNNER)
        return
    row, job = shared.state.view().chosen, None
    if row is not None and row.process is not None:
        with suppress(UserError):
            job = runner.command_of(row.process.pid, row.process.command or "")
    shared.app.push_screen(EachCardWindow(runner, job))


class EachCardWindow(Window[None]):
    """A command, cards, and the result on each; a selected job's command is proposed, and its folder and environment
    are used. Closing it stops the running job.
    """

    def __init__(self, runner: CardRunner, job: JobCommand | None) -> None:
        super().__init__("This script on each card", "Enter run · Tab next field · Esc close")
        self._runner, self._job = runner, job
        self._cards: tuple[Device, ...] = ()
        self._ended: list[CardRun] = []
        self._cancel = threading.Event()
        self._at_work = False

    def inside(self) -> ComposeResult:
        yield Static(ABOUT, markup=False)
        proposed = "python train.py" if self._job is None else shlex.join(self._job.words)
        for value, identity in ((proposed, "command"), (USUAL_CARDS, "cards")):
            line = Input(printable(value), id=identity)
            line.cursor_blink = False
            yield line
        folder = "this program's folder" if self._job is None else printable(self._job.folder)
        yield Static(f"in {folder}", id="where", markup=False)
        yield Static("", id="rows", markup=False)
        yield Static("", id="wrong", markup=False)

    def on_mount(self) -> None:
        self.query_one("#command", Input).focus()

    def on_unmount(self) -> None:
        self._cancel.set()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Run the command on each card, or show what is wrong with the input."""
        event.stop()
        if self._at_work:
            return
        fault = self.query_one("#wrong", Static)
        try:
            words = shlex.split(self.query_one("#command", Input).value)
            names = [name.strip() for name in self.query_one("#cards", Input).value.split(",") if name.strip()]
            self._cards = tuple(dict.fromkeys(chosen_device(name, None) for name in names))
        except (UserError, ValueError) as error:
            fault.update(str(error))
            return
        if not words or not self._cards:
            fault.update("a command and a card are needed")
            return
        fault.update("")
        self._ended, self._at_work = [], True
        self._show()
        threading.Thread(target=self._run, args=(words,), name="each card", daemon=True).start()

    def _run(self, words: Sequence[str]) -> None:
        """Run on one card after another, on a thread; an error ends them all."""
        app = self.app

        def take(ran: CardRun) -> None:
            self._ended.append(ran)
            self._at_work = len(self._ended) < len(self._cards)
            self._show()

        def fail(problem: str) -> None:
            self._at_work = False
            if self.is_attached:
                self.query_one("#wrong", Static).update(printable(problem))
            self._show()

        for device in self._cards:
            try:
                ran = self._runner.run(words, self._job, device, self._cancel)
            except (UserError, OSError) as error:
                app.call_later(fail, str(error))
                return
            if ran is None:
                return
            app.call_later(take, ran)

    def _show(self) -> None:
        if not self.is_attached:
            return
        heading = "".join(f"{one:>{SIZE}}" for one in ("ALLOCATED", "RESERVED", "PROCESS", "OF"))
        lines = [f"{'CARD':<{CARD_NAME}}{heading}  VERDICT"]
        for ran in self._ended:
            sizes = "".join(
                f"{format_bytes(size):>{SIZE}}" for size in (ran.allocated, ran.reserved, ran.process, ran.memory)
            )
            lines.append(f"{fit(ran.card, CARD_NAME):<{CARD_NAME}}{sizes}  {ran.verdict}")
        for at, device in enumerate(self._cards[len(self._ended) :]):
            lines.append(f"{device.name:<{CARD_NAME}}" + ("  runs …" if self._at_work and not at else ""))
        self.query_one("#rows", Static).update("\n".join(lines))
