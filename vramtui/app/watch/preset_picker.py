"""The list of presets with a filter: to estimate one, or to assign one to a process."""

import re
import threading
from collections.abc import Sequence
from itertools import groupby
from math import log
from pathlib import PurePath
from time import thread_time

from rich.cells import cell_len
from textual.binding import Binding
from textual.content import Content
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from vramtui.app.state.dashboard_state import DashboardState
from vramtui.app.state.view import ProcessRow
from vramtui.app.terminal.textual_private import call_after
from vramtui.app.themes import FIT_COLOURS
from vramtui.app.ui.chooser import Chooser, ranked
from vramtui.app.ui.lines import fit, short_name
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_gib
from vramtui.core.estimate.devices import CARDS, Device
from vramtui.core.estimate.fits import FitVerdict, fits_in
from vramtui.core.observation.snapshot import device_of
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import ServeRun, Workload
from vramtui.models.stores.local_models import local_models
from vramtui.models.stores.resolve import letters_of
from vramtui.monitor.what_fits import ModelFit, Question, Room, headings_of, models_that_fit, question_of, row_of
from vramtui.presets.importers.command_lines import read_command_line
from vramtui.presets.importers.flags import SERVERS
from vramtui.presets.importers.process_offers import family_of
from vramtui.presets.library import PresetLibrary
from vramtui.presets.named_presets import preset_named

# Not keys of presets, which are stems of files.
NONE = "/none"
AUTOMATIC = "/automatic"
NAME_MOST = 31
NEAREST, YOURS, RUNNING, RECENT = "nearest to what the process holds", "yours", "running now", "recent"
MOST_NEAREST = 8
# For each usual size the card with the least memory for a process.
SIZES = {
    size: CARDS[name]
    for size, name in (
        (8, "RTX3070"), (12, "RTX5070"), (16, "T4"), (24, "A10"), (32, "RTX5090"), (40, "A100-40GB"), (48, "A40"),
        (80, "A100-80GB"), (96, "H100NVL"), (141, "H200"), (192, "B200"), (288, "B300"),
    )
}  # fmt: skip
MOST_MODELS = 100
# Kinds of cards in a line, columns of a name, and of the word if there is one kind.
MOST_CARDS, CARD_MOST, ALONE = 4, 12, 8
WIDEST, ROOMY = 124, 90
LEGEND = "✓ fits · ! tight · ✗ does not fit"
WORDS: dict[FitVerdict, str] = {"fits": "fits", "tight": "tight", "does not fit": "no", "unknown": "?"}
BUDGET, BETWEEN = 0.01, 0.01  # seconds of one turn of estimates, and between two turns, for keys and drawing


class PresetChooser(Chooser):
    """Dismissed with a preset's key, NONE or AUTOMATIC, or None. A downloaded model is listed once something is typed,
    and becomes a preset when it is chosen.
    """

    def __init__(
        self, state: DashboardState, title: str, recent: Sequence[str] = (), row: ProcessRow | None = None
    ) -> None:
        super().__init__(title)
        self._state = state
        # Kinds of cards that a preset may run on: the chosen row's, the planned one, and all of the machine.
        cards = [state.device(), *([state.planned] if state.planned is not None else [])]
        cards += [device_of(gpu) for gpu in state.sample.gpus] if state.sample is not None else []
        kinds: dict[tuple[str, int], Device] = {}
        for card in cards:
            kinds.setdefault((card.name, card.total_memory), card)
        self._devices = tuple(kinds.values())[:MOST_CARDS]
        if len(self._devices) > 1:
            self._hint = f"{LEGEND} · {self._hint}"
        self._recent = recent
        self._row, self._nearest = row, tuple[str, ...]()
        self._waiting: set[str] = set()
        self._as_run: dict[str, PresetFile] = {}  # with the values of the chosen process's job
        self._models: tuple[str, ...] | None = None

    def on_mount(self) -> None:
        """Fill in totals as their lines become visible."""
        self.watch(self.query_one(OptionList), "scroll_y", self.fill_totals, init=False)
        if self._row is not None and self._row.process is not None:
            presets = [*self._state.session.presets.values()]
            self._find_nearest(self._row.peak or self._row.now, self._row.process.command or "", presets, {})

    def _find_nearest(
        self, memory: int | None, command: str, presets: list[PresetFile], apart: dict[str, tuple[bool, float]]
    ) -> None:
        """Compare the presets of the process's engine with the model that it names and the bytes that it holds, in
        turns.
        """
        over, predictor = thread_time() + BUDGET, self._state.session.predictor
        engine, named = SERVERS.get(family_of(read_command_line(command))), letters_of(command)  # None: no server
        while presets and memory and thread_time() < over:
            preset = presets.pop()
            run, workload = preset.preset.run, self._workload(preset)
            if engine == (("llama.cpp" if run.is_llama_cpp else run.engine) if isinstance(run, ServeRun) else None):
                quick = predictor.quick(workload, self._devices[0])
                is_known = predictor.knows_total(workload, self._devices[0])
                needs = predictor.total(workload, self._devices[0]) if is_known else quick and quick.process
                is_other = letters_of(preset.preset.name.partition(" · ")[0]) not in named
                apart |= {preset.key: (is_other, abs(log(needs / memory)))} if needs else {}
        if presets and memory:
            call_after(self, BETWEEN, lambda: self._find_nearest(memory, command, presets, apart))
        elif self.is_attached and apart:
            options = self.query_one(OptionList)
            at = options.get_option_at_index(options.highlighted).id if options.highlighted else None
            self._nearest = tuple(sorted(apart, key=lambda key: (apart[key], key))[:MOST_NEAREST])
            self.fill(self.query_one(Input).value)
            if at is not None:
                options.highlighted = options.get_option_index(at)

    def fill(self, wanted: str) -> None:
        """List the presets, under headings until a word is typed; totals follow for the visible lines."""
        options: list[Option] = []
        if self._row is not None and not wanted:
            options.append(Option(Content("automatic: the preset that fits the command line"), AUTOMATIC))
            options.append(Option(Content("none: no preset"), NONE))
        words = wanted.lower().split()
        running = {preset_file.key for preset_file in self._state.session.matched.values()}

        def place(preset: PresetFile) -> tuple[int, str]:
            if preset.key in self._nearest:
                return -1, NEAREST
            if not preset.bundled:
                return 0, YOURS
            if preset.key in running:
                return 1, RUNNING
            return (2, RECENT) if preset.key in self._recent else (3, PurePath(preset.path).parent.name)  # its family

        def order(preset: PresetFile) -> tuple[int, str, int, str]:
            first, title = place(preset)
            lately = self._recent.index(preset.key) if title == RECENT else 0
            lately = self._nearest.index(preset.key) if first < 0 else lately
            return first, "" if words else title, lately, preset.key

        every = self._state.session.presets.values()
        choices = ranked(wanted, every, lambda one: (one.key, f"{one.preset.name} {one.preset.notes}"), order)
        knows, cards = self._state.session.predictor.knows_total, self._devices
        read = choices if self._row is None else [one for one in choices if one.key in self._as_run]
        known = {one.key for one in read if all(knows(self._workload(one), to) for to in cards)}
        self._waiting = {one.key for one in choices} - known
        titled = not words and len({place(preset) for preset in choices}) > 1
        for (_, title), presets in groupby(choices, place):
            if titled:
                options.append(Option(Content.styled(title, "$muted"), disabled=True))
            options += [Option(self._line(preset), preset.key) for preset in presets]
        if words:  # downloaded models below the presets, and a typed path or name with a slash
            if self._models is None:
                self._models = local_models()
            names = [name for name in self._models if all(word in name.lower() for word in words)]
            typed = wanted.strip()
            if "/" in typed and typed not in names:
                names.insert(0, typed)
            about = "  a model's file: its config and headers are read when chosen"
            options += [
                Option(Content.assemble((printable(name), "bold"), about), name)
                for name in names[:MOST_MODELS]
                if name not in self._state.session.presets
            ]
        self.list_options(options, "no preset matches")
        self.call_after_refresh(self.fill_totals)

    def take(self, chosen: str | None) -> None:
        """Close with the choice; a model's files are read first, and if that fails the list stays."""
        if chosen is not None and chosen not in self._state.session.presets and chosen not in {NONE, AUTOMATIC}:
            try:
                preset_file = preset_named(chosen, PresetLibrary())
            except UserError as error:
                self.notify(str(error), severity="warning")
                return
            self._state.add_preset(preset_file)
            chosen = preset_file.key
        super().take(chosen)

    def fill_totals(self) -> None:
        """Put totals into the visible lines for a moment; then again, until all of them have theirs."""
        lists = self.query(OptionList)
        if not lists:
            return  # closed meanwhile
        options = lists.first()
        first = options.scroll_offset.y
        seen = options.options[first : first + options.size.height]
        waiting = [option.id for option in seen if option.id is not None and option.id in self._waiting]
        over = thread_time() + BUDGET
        for at, key in enumerate(waiting):
            self._waiting.discard(key)
            options.replace_option_prompt(key, self._line(self._state.session.presets[key]))
            if thread_time() > over and at < len(waiting) - 1:
                call_after(self, BETWEEN, self.fill_totals)
                return

    def _workload(self, preset_file: PresetFile) -> Workload:
        """Return what the panel will estimate: with the ranks, batch and sequence of the chosen process's job."""
        row, key = self._row, preset_file.key
        if row is not None and row.process is not None and key not in self._as_run:
            self._as_run[key] = self._state.session.as_assigned(row.gpu, row.process, preset_file)
        return self._state.workload(self._as_run.get(key, preset_file))

    def _line(self, preset_file: PresetFile) -> Content:
        """Return the preset's line, with dots for a total that is not known yet."""
        waits, predictor = preset_file.key in self._waiting, self._state.session.predictor
        workload = None if waits else self._workload(preset_file)
        fits = [None if workload is None else predictor.fit(workload, device) for device in self._devices]
        process = fits[0].needs if fits[0] is not None else None
        about = "≈" if workload is not None and predictor.is_quick(workload, self._devices[0]) else ""
        total = "…" if waits else f"{about}{format_gib(process)} GiB" if process is not None else "no estimate"
        key, preset, mine = printable(preset_file.key)[:NAME_MOST], preset_file.preset, " (yours)"
        own = printable(f"{preset.name}{mine * (not preset_file.bundled)}{preset.notes and f' · {preset.notes}'}")
        pieces: list[str | tuple[str, str]] = [(key, "bold"), " " * (NAME_MOST - cell_len(key))]
        pieces.append((f"{total:>12}  ", "$prediction"))
        alone = len(fits) == 1
        for verdict, device in zip(fits, self._devices, strict=True):  # in a word for one kind of card, else by signs
            width = ALONE if alone else 2 + min(CARD_MOST, len(short_name(device.name))) + 2
            if verdict is None:
                pieces.append((" " * width, "$muted"))
            else:
                words = WORDS[verdict.verdict] if alone else printable(short_name(device.name))[:CARD_MOST]
                pieces.append((f"{verdict.sign} {words}".ljust(width), f"${FIT_COLOURS[verdict.verdict]}"))
        if alone and self.room(WIDEST) >= ROOMY:
            sizes = (f"from {size} GB" for size, card in SIZES.items() if fits_in(process or 0, card.total_memory))
            smallest = "" if process is None else next(sizes, "no card")
            pieces.append((f"{smallest:<11}", "$muted"))
        return Content.assemble(*pieces, f"  {own}")


JOBS = ((), ("--serve=vllm",), ("--lora=16",), ("--qlora=16",))
LEAST_NAME = 28


class ModelsChooser(Chooser):
    """`w` on Watch. Dismissed with the name of a model, or None. A thread finds the models, the largest first; Tab
    changes the job.
    """

    BINDINGS = [Binding("tab", "next_job", "Next job", id="models.job", show=False, priority=True)]

    def __init__(self, room: Room) -> None:
        super().__init__(f"What fits {room.name}?")
        self._hint = f"Tab llama.cpp, vLLM, LoRA, QLoRA · {self._hint}"
        self._room, self._job = room, -1
        self.question = question_of(())
        self.fits: dict[str, ModelFit] = {}

    def on_mount(self) -> None:
        self.action_next_job()

    def action_next_job(self) -> None:
        self._job, self.fits = (self._job + 1) % len(JOBS), {}
        self.question = question_of(JOBS[self._job])
        self.fill(self.query_one(Input).value)
        threading.Thread(target=self._find, args=(self.question,), name="what fits", daemon=True).start()

    def _find(self, question: Question) -> None:
        app, fits = self.app, dict[str, ModelFit]()
        for one in models_that_fit(question, self._room):
            if not self.is_attached or question is not self.question:
                return
            fits[one.name] = one
            if len(fits) in {5, 20} or len(fits) % 50 == 0:
                app.call_later(self._take, question, dict(fits))
        app.call_later(self._take, question, fits)

    def _take(self, question: Question, fits: dict[str, ModelFit]) -> None:
        if question is self.question and self.is_attached:
            self.fits = fits
            self.fill(self.query_one(Input).value)

    def fill(self, wanted: str) -> None:
        """List the models with these words in their names, below the headings."""
        names, places = [*self.fits], {name: at for at, name in enumerate(self.fits)}
        rows = [row_of(self.fits[name]) for name in ranked(wanted, names, lambda name: (name, ""), places.__getitem__)]
        table, room = [(self.question.title, *headings_of(self.question)[1:]), *rows], self.room(116)
        widths = [max(map(len, column)) + 2 for column in zip(*table, strict=True)][1:]
        if room - sum(widths) < LEAST_NAME:  # a model's name says its size as well; contexts in units of 1,024 tokens
            thousands = re.compile(r"(?<!\w)[\d,]+$")
            table = [
                (
                    *(cells[0].rpartition("/")[2], cells[2]),
                    *(thousands.sub(lambda n: f"{int(n[0].replace(',', '')) // 1024}k", one) for one in cells[3:]),
                )
                for cells in table
            ]
            widths = [max(map(len, column)) + 2 for column in zip(*table, strict=True)][1:]
        lines = [
            fit(printable(cells[0]), room - sum(widths))
            + "".join(f"{cell:>{width}}" for cell, width in zip(cells[1:], widths, strict=True))
            for cells in table
        ]
        options = [Option(Content.styled(lines[0], "$muted"), disabled=True)]
        options += [Option(Content(line), cells[0]) for line, cells in zip(lines[1:], rows, strict=True)]
        self.list_options(options, "")
