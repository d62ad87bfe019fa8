"""The list of presets with a filter: to estimate one, or to say which of them a process runs."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import PurePath
from time import thread_time

from rich.cells import cell_len
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from vramtui.app.state.dashboard_state import DashboardState
from vramtui.app.terminal.textual_private import call_after
from vramtui.app.ui.chooser import Chooser, ranked
from vramtui.app.ui.lists import short_name
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_gib
from vramtui.core.estimate.devices import CARDS, Device
from vramtui.core.estimate.fits import Fit, FitVerdict, fits_in
from vramtui.core.observation.snapshot import device_of
from vramtui.core.schema.preset import PresetFile

# No preset's key: keys are stems of files.
NONE = "/none"
AUTOMATIC = "/automatic"
NAME_MOST = 31
YOURS, RUNNING, RECENT = "yours", "running now", "recent"
# A card for each usual size: the one of its size that has the least memory for a process.
SIZES = {
    size: CARDS[name]
    for size, name in (
        (8, "RTX3070"),
        (12, "RTX5070"),
        (16, "T4"),
        (24, "A10"),
        (32, "RTX5090"),
        (40, "A100-40GB"),
        (48, "A40"),
        (80, "A100-80GB"),
        (96, "H100NVL"),
        (141, "H200"),
        (192, "B200"),
        (288, "B300"),
    )
}
MOST_MODELS = 100
# The kinds of cards that a line has room for, the columns of a name, and of the word where there is one kind.
MOST_CARDS, CARD_MOST, ALONE = 4, 12, 8
WIDEST, ROOMY = 124, 90
LEGEND = "✓ fits · ! tight · ✗ does not fit"
WORDS: dict[FitVerdict, str] = {"fits": "fits", "tight": "tight", "does not fit": "no", "unknown": "?"}
COLOURS: dict[FitVerdict, str] = {
    "fits": "$success",
    "tight": "$warning",
    "does not fit": "$error",
    "unknown": "$warning",
}
# Seconds of work that estimates may take of one turn, and that keys and drawing have between two.
BUDGET, BETWEEN = 0.01, 0.01


class PresetChooser(Chooser):
    """Dismissed with a preset's key, NONE or AUTOMATIC; None when nothing was chosen. A downloaded model is listed once
    something is typed, and becomes a preset when it is chosen.

    Args:
        state: knows the presets and their estimates.
        title: what is asked.
        recent: the keys of those that were chosen lately, the latest first.
        matching: offer also no preset, and the automatic match.
    """

    DEFAULT_CSS = """
    PresetChooser > #window { width: 124; }
    """

    def __init__(
        self, state: DashboardState, title: str, recent: Sequence[str] = (), *, matching: bool = False
    ) -> None:
        super().__init__(title)
        self._state = state
        self._devices = kinds_of_cards(state)[:MOST_CARDS]
        if len(self._devices) > 1:
            self._hint = f"{LEGEND} · {self._hint}"
        self._recent = recent
        self._matching = matching
        self._waiting: set[str] = set()
        self._models: tuple[str, ...] | None = None

    def on_mount(self) -> None:
        """Fill in totals as their lines come into sight."""
        self.watch(self.query_one(OptionList), "scroll_y", self.fill_totals, init=False)

    def fill(self, wanted: str) -> None:
        """List what holds every word, under headings until one is typed; totals follow for the lines that are seen."""
        options: list[Option] = []
        if self._matching and not wanted:
            options.append(Option(Content("automatic: the preset that fits the command line"), AUTOMATIC))
            options.append(Option(Content("none: no preset"), NONE))
        words = wanted.lower().split()
        running = {preset_file.key for preset_file in self._state.session.matched.values()}

        def place(preset: PresetFile) -> tuple[int, str]:
            if not preset.bundled:
                return 0, YOURS
            if preset.key in running:
                return 1, RUNNING
            return (2, RECENT) if preset.key in self._recent else (3, _family(preset))

        def order(preset: PresetFile) -> tuple[int, str, int, str]:
            first, title = place(preset)
            lately = self._recent.index(preset.key) if title == RECENT else 0
            return first, "" if words else title, lately, preset.key

        choices = ranked(wanted, self._state.presets.values(), _text, order)
        self._waiting = {preset.key for preset in choices if not self._is_known(preset)}
        titled = not words and len({place(preset) for preset in choices}) > 1
        for (_, title), presets in groupby(choices, place):
            if titled:
                options.append(Option(Content.styled(title, "$muted"), disabled=True))
            options += [Option(self._line(preset), preset.key) for preset in presets]
        self.list_options([*options, *self._downloaded(wanted, words)], "no preset matches")
        self.call_after_refresh(self.fill_totals)

    def _downloaded(self, wanted: str, words: list[str]) -> list[Option]:
        """Models of the local stores whose names hold every word, below the presets; none before a word is typed. A
        path, and a name with a slash, is offered as it stands.
        """
        if not words:
            return []
        if self._models is None:
            from vramtui.models.stores.local_models import local_models

            self._models = local_models()
        names = [name for name in self._models if all(word in name.lower() for word in words)]
        typed = wanted.strip()
        if "/" in typed and typed not in names:
            names.insert(0, typed)
        known = self._state.presets
        return [Option(_model_line(name), name) for name in names[:MOST_MODELS] if name not in known]

    def take(self, chosen: str | None) -> None:
        """Close with it; a model's files are read first, and stay in the list where they cannot be."""
        if chosen is not None and chosen not in self._state.presets and chosen not in {NONE, AUTOMATIC}:
            from vramtui.presets.library import PresetLibrary  # only for a model that is no preset
            from vramtui.presets.named_presets import preset_named  # only for a model that is no preset

            try:
                preset_file = preset_named(chosen, PresetLibrary())
            except UserError as error:
                self.notify(str(error), severity="warning", markup=False)
                return
            self._state.add_preset(preset_file)
            chosen = preset_file.key
        super().take(chosen)

    def _is_known(self, preset_file: PresetFile) -> bool:
        workload = self._state.workload(preset_file)
        return all(self._state.predictor.knows_total(workload, device) for device in self._devices)

    def fill_totals(self) -> None:
        """Put totals into the lines that are seen, for a moment; then again, until all of them have theirs."""
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
            options.replace_option_prompt(key, self._line(self._state.presets[key]))
            if thread_time() > over and at < len(waiting) - 1:
                call_after(self, BETWEEN, self.fill_totals)
                return

    def _line(self, preset_file: PresetFile) -> Content:
        """The preset's line; with dots for its total where that is not known yet and somebody else has to ask."""
        workload, waits = self._state.workload(preset_file), preset_file.key in self._waiting
        fits = [None if waits else self._state.predictor.fit(workload, device) for device in self._devices]
        process = fits[0].needs if fits[0] is not None else None
        about = "≈" if not waits and self._state.predictor.is_quick(workload, self._devices[0]) else ""
        total = "…" if waits else f"{about}{format_gib(process)} GiB" if process is not None else "no estimate"
        key = printable(preset_file.key)[:NAME_MOST]
        mine = "" if preset_file.bundled else " (yours)"
        own = printable(
            f"{preset_file.preset.name}{mine} · {preset_file.preset.notes}"
            if preset_file.preset.notes
            else preset_file.preset.name + mine
        )
        pad = " " * (NAME_MOST - cell_len(key))
        return Content.assemble(
            (key, "bold"),
            pad,
            (f"{total:>12}  ", "$prediction"),
            *(_mark(fit, device, alone=len(fits) == 1) for fit, device in zip(fits, self._devices, strict=True)),
            (f"{_smallest_card(process):<11}", "$muted") if len(fits) == 1 and self.room(WIDEST) >= ROOMY else "",
            f"  {own}",
        )


def kinds_of_cards(state: DashboardState) -> tuple[Device, ...]:
    """The kinds of cards that a preset may run on: that of the chosen row, the planned one, and all of the machine."""
    cards = [state.device(), *([state.planned] if state.planned is not None else [])]
    cards += [device_of(gpu) for gpu in state.sample.gpus] if state.sample is not None else []
    kinds: dict[tuple[str, int], Device] = {}
    for card in cards:
        kinds.setdefault((card.name, card.total_memory), card)
    return tuple(kinds.values())


def _mark(fit: Fit | None, device: Device, *, alone: bool) -> tuple[str, str]:
    """Whether it fits one kind of card: in a word where there is only that one, else by a sign before its name."""
    width = ALONE if alone else 2 + min(CARD_MOST, len(short_name(device.name))) + 2
    if fit is None:
        return " " * width, "$muted"
    words = WORDS[fit.verdict] if alone else printable(short_name(device.name))[:CARD_MOST]
    return f"{fit.sign} {words}".ljust(width), COLOURS[fit.verdict]


def _text(preset_file: PresetFile) -> tuple[str, str]:
    return preset_file.key, f"{preset_file.preset.name} {preset_file.preset.notes}"


def _family(preset_file: PresetFile) -> str:
    """The folder that a bundled preset stands in."""
    return PurePath(preset_file.path).parent.name


def _smallest_card(process: int | None) -> str:
    """The smallest of the usual sizes of cards that a process fits."""
    if process is None:
        return ""
    return next((f"from {size} GB" for size, card in SIZES.items() if fits_in(process, card.total_memory)), "no card")


def _model_line(name: str) -> Content:
    return Content.assemble((printable(name), "bold"), "  a model's file: its config and headers are read when chosen")
