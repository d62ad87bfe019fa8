"""`vramtui fit`: the largest job on a card, the changes that make it fit, and tables of cards and of two values."""

import re
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import typer

from vramtui.cli.common.console import print_json, print_table, print_wrapped, text_width
from vramtui.cli.common.exit_codes import NO, exit_by, go_on_unread, say
from vramtui.cli.estimate import changed_preset, naming_setting, shared_over
from vramtui.cli.options import job_command
from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.core.base.text import printable
from vramtui.core.base.units import UNKNOWN, format_bytes, format_column, format_gib, unit_of
from vramtui.core.estimate.devices import CARD_GROUPS, Device, chosen_device, on_card, size_note
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import Parallel, beyond_own_length
from vramtui.estimators.analytic import ANALYTIC
from vramtui.estimators.planner import card_table
from vramtui.estimators.planner.planner import Mitigation, Plan, Planner, answer_for, key_in_full, worthwhile
from vramtui.presets.importers.flags import spelled_option
from vramtui.presets.toml_text import value_text
from vramtui.records.estimate_document import device_document, notes_on

if TYPE_CHECKING:
    from vramtui.monitor.what_fits import Question, Room

Column = tuple[PresetFile, tuple[card_table.CardFit, ...]]
MOST_NODES = 16
MOST_VALUES = 400
COLUMNS, ROWS = 10, 20
GRES_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
RANGE = re.compile(r"([\w.]+)=(\d+):(\d+)(?::(\d+))?")


@job_command("gpus")
def fit(
    *,
    gpu: str | None = None,
    memory: str | None = None,
    gpus: int | None = None,
    preset: list[str] | None = None,
    vary: str | None = None,
    over: list[str] | None = None,
    settings: list[str] | None = None,
    job_file: Path | None = None,
    sbatch: bool = False,
    per_node: int = 8,
    gres_type: str | None = None,
    every: bool = False,
    plot: bool = False,
    json: bool = False,
) -> None:
    """The largest batch that fits, what each change would free, and the cheapest way to make it fit.

    Without a card: which card do I need? Every known card, for one preset or for several in one table.

    Without a model: which models fit the card (or what is free on this machine now), quantized how, with how much
    context? --serve, --lora, --qlora and --context narrow it.

    Exit code 1 if the preset as it stands does not fit; without a card, if it fits none.
    """
    asks = gpu is not None or memory is not None
    if not preset:
        for option, given in (("--over", over), ("--vary", vary), ("--job-file", job_file), ("--sbatch", sbatch)):
            if given:
                raise UserError(f"{option} needs a model, as in: vramtui fit Qwen3-8B --gpu 4090 {option} …")
        from vramtui.monitor.what_fits import question_of, room_of

        question, named = question_of(settings or (), gpus or 1), (None,) if gpu is None else gpu.split(",")
        if asks:
            rooms = [room_of(chosen_device(name, memory)) for name in named]
        else:  # this machine's GPU with the most free memory
            from vramtui.cli.pick import sample_here
            from vramtui.cli.run.placement import usable
            from vramtui.monitor.what_fits import room_on

            gpus_here = usable(sample_here().gpus)
            free = [room for one in gpus_here if (room := room_on(one)) is not None]
            if not free:
                raise SourceFailed("No GPU with free memory is known.", "Name a card or a size: vramtui fit --gpu 24GB")
            if len(gpus_here) > 1:
                say(f"the one of {len(gpus_here)} GPUs with the most free memory; --gpu names others")
            rooms = [max(free, key=lambda room: room.device.total_memory)]
        _show_models(question, rooms, every=every, json=json)
        return
    changed = [changed_preset(one, settings or [], job_file) for one in preset]
    if not (asks or over or vary or gpus or sbatch):
        from vramtui.estimators.methods import DEFAULT

        known, columns = card_table.known_cards(), list[Column]()
        for one in changed:
            with naming_setting(one):
                ANALYTIC.estimate(one.preset.workload, known[-1])
            columns.append((one, tuple(card_table.card_fits(ANALYTIC, one.preset.workload, known, exact=DEFAULT))))
        with go_on_unread():
            _show_cards(columns, json=json)
        if not all(any(one.fit is not None and one.fit.is_enough for one in cards) for _, cards in columns):
            raise typer.Exit(NO)
        return
    if not asks:
        raise UserError("name the card to fit: --gpu H200, or --memory 24GiB")
    if len(changed) > 1:
        raise UserError("one preset with a card; without --gpu and --memory several are compared with each other")
    device = chosen_device(gpu, memory)
    if memory is None and (note := size_note(gpu, device)):
        say(note)
    preset_file = shared_over(on_card(changed[0], device), device, None if sbatch else gpus)
    if sbatch:
        if json:
            raise UserError("--sbatch prints lines of a batch script, --json one document; ask for one of them")
        print_sbatch(preset_file, device, per_node, gres_type)
        return
    workload = preset_file.preset.workload
    if over:
        if len(over) != 2:
            other = "sequence_length=512:8192:512" if "batch" in over[0] else "batch_size=1:32"
            raise UserError(f"a map needs --over twice: --over {over[0]} --over {other}")
        axes: list[card_table.Axis] = []
        for text in over:
            match = RANGE.fullmatch(text)
            if match is None:
                raise UserError(f"--over {text} is not written KEY=FROM:TO or KEY=FROM:TO:STEP, as run.batch_size=1:32")
            start, stop, step = int(match[2]), int(match[3]), int(match[4] or 1)
            if step < 1 or start < 1 or stop < start:
                raise UserError(f"--over {text}: write FROM:TO, rising from 1 or more: --over {match[1]}=1:32")
            if (stop - start) // step >= MOST_VALUES:
                least = -(-(stop - start) // ROWS)
                again = f"{match[1]}={start}:{stop}:{1 << (least - 1).bit_length()}"  # sizes are mostly powers of two
                raise UserError(f"--over {text} has more than {MOST_VALUES} values; give a step: --over {again}")
            axes.append((match[1], range(start, stop + 1, step)))
        if axes[0][0] == axes[1][0]:
            raise UserError(f"--over {axes[0][0]} is given twice; a map needs two different numbers")
        with naming_setting(preset_file):
            # An axis may leave out the table of its key, as --set may, or be a name that options of programs have.
            across, down = (
                (key_in_full(workload, (spelled_option(key, "1") or (key,))[0]), values) for key, values in axes
            )
            grid = card_table.plan_grid(ANALYTIC, workload, device, across, down)
        with go_on_unread():
            _show_map(preset_file, device, grid, json=json)
        if not any(any(row) for row in grid.fits):
            raise typer.Exit(NO)
        return
    with naming_setting(preset_file):
        from vramtui.estimators.methods import DEFAULT

        planner = Planner(ANALYTIC, workload, device, gpus or 1, exact=DEFAULT)
        plan = planner.plan(None if vary is None else key_in_full(workload, vary))
    with go_on_unread():
        if json:
            print_json(_plan_document(preset_file, device, gpus or 1, plan))
        else:
            _print_plan(preset_file, device, plan)
            if plot:
                from vramtui.cli.common.plot import memory_curve

                places, sizes = zip(*planner.sizes(plan.edge), strict=True)
                title = f"process by {plan.edge.key}, · {device.name}"
                print(f"\n{memory_curve(title, places, sizes, device.total_memory)}")
    exit_by((plan.fit,))


def _plan_document(preset_file: PresetFile, device: Device, gpus: int, plan: Plan) -> dict[str, object]:
    """The planner's answer for JSON; sizes in bytes, `cheapest` null if nothing is enough."""
    cheapest = None
    if plan.cheapest is not None:
        changes = {key: value for mitigation in plan.cheapest for key, value in mitigation.changes.items()}
        levers = [mitigation.name for mitigation in plan.cheapest]
        cheapest = {"levers": levers, "changes": changes, "process": plan.cheapest_process}
    return {
        "schema": 1,
        "preset": preset_file.key,
        "device": device_document(device),
        "gpus": gpus,
        "fits": plan.fits,
        "verdict": plan.fit.verdict,
        "process": plan.process,
        "spare": plan.fit.spare,
        "vary": plan.edge.key,
        "largest": plan.edge.largest,
        "process_at_largest": plan.edge.process,
        "process_beyond": plan.edge.beyond,
        "reason": plan.edge.reason,
        "also": plan.also,
        "refusal": plan.reason or None,
        "notes": notes_on(preset_file.preset.workload),
        "levers": plan.effects,
        "cheapest": cheapest,
    }


def _print_plan(preset_file: PresetFile, device: Device, plan: Plan) -> None:
    wide = text_width()
    most = (
        f"{edge.key}: {'' if edge.largest is None else f'at most {edge.largest:,} ({format_bytes(edge.process)}); '}"
        + edge.reason
        for edge in (plan.edge, *plan.also)
    )
    notes = (plan.reason, beyond_own_length(preset_file.preset.workload))
    for line in (plan.fit.line(device.name), preset_file.title, *filter(None, notes), *most):
        print_wrapped(line, wide)
    if plan.effects:
        print()
        if plan.fits:
            print_wrapped("No change needed.", wide)
        elif plan.cheapest is None:
            print_wrapped("No set of these changes makes it fit.", wide)
        else:
            names = " and ".join(mitigation.name for mitigation in plan.cheapest)
            sentence = f"Smallest change that fits: {names} ({format_bytes(plan.cheapest_process)})."
            print_wrapped(f"{sentence}\n  {settings_of(plan.cheapest)}", wide)
    if effects := worthwhile(plan.effects, plan.process, (plan.edge,)):
        print()
        unit, name = unit_of(max(effect.process for effect in effects))
        rows = [
            (
                effect.mitigation,
                format_column(effect.frees, unit),
                format_column(effect.process, unit),
                "yes" if effect.fits else "no",
                UNKNOWN if effect.largest is None else f"{effect.largest:,}",
                effect.cost,
            )
            for effect in effects
        ]
        largest = f"MAX {plan.edge.key.rsplit('.', maxsplit=1)[-1].upper()}"
        headings = ("CHANGE", f"FREES {name}", "PROCESS", "FITS", largest, "COST")
        *figures, last = zip(headings, *rows, strict=True)
        widths = [max(map(len, column)) for column in figures]
        if sum(widths) + 3 * len(widths) + max(map(len, last)) <= wide:
            print_table(headings, rows, right=(1, 2, 4))
        else:  # the cost of a change is below the figures
            print_table(headings[:-1], [row[:-1] for row in rows], right=(1, 2, 4))
            print()
            for row in rows:
                print_wrapped(f"{row[0]}: {row[-1]}", wide)
    sys.stdout.flush()


def settings_of(mitigations: Sequence[Mitigation]) -> str:
    """The changes as `--set` takes them, ready for a shell."""
    return " ".join(
        f"--set {key}={quote(value if isinstance(value, str) else value_text(value))}"
        for mitigation in mitigations
        for key, value in mitigation.changes.items()
    )


def print_sbatch(preset_file: PresetFile, device: Device, per_node: int, kind: str | None) -> None:
    """Print lines for the head of a batch script; a node has up to `per_node` cards, of the site's type `kind` or of
    any. Raises UserError if `kind` is not a name of a type, and typer.Exit if it fits no allocation, which is shown on
    standard error.
    """
    if kind is not None and GRES_TYPE.fullmatch(kind) is None:
        raise UserError(
            f"--gres-type {kind!r} is not a type of GPU; `sinfo -o %G` shows the site's: gpu:h100:4 has h100"
        )
    from vramtui.estimators.methods import DEFAULT

    workload = preset_file.preset.workload
    with naming_setting(preset_file):
        answer = answer_for(DEFAULT, workload, device)
        ranks = (workload.parallel or Parallel()).ranks
        smallest = card_table.SharedJob("", ranks, workload, answer) if answer.fits else None
        # It does not fit as its preset spreads it: the fewest cards that hold it by FSDP or tensor parallel.
        within = [count for count in (2, 4, 8, 16, 32) if count < per_node]
        for count in (*within, *(per_node * nodes for nodes in (1, 2, 4, 8, MOST_NODES))):
            if smallest is None:
                job = card_table.shared_job(DEFAULT, workload, device, count, linked=count <= per_node)
                smallest = job if job is not None and job.answer.fits else None
    if smallest is None:
        say(f"{preset_file.key} does not fit {device.name} on up to {MOST_NODES} nodes; see `vramtui fit`")
        raise typer.Exit(NO)
    count = smallest.cards
    nodes = next(nodes for nodes in range(1, count + 1) if count % nodes == 0 and count // nodes <= per_node)
    each = count // nodes
    gpu = "gpu" if kind is None else f"gpu:{kind}"
    spread = f" with {smallest.words}" if smallest.words else ""
    sizes = f"{format_bytes(smallest.answer.process)} of {format_bytes(device.total_memory)}"
    lines = (
        f"# {preset_file.key} on {device.name}: {sizes} on each GPU predicted{spread}",
        f"#SBATCH --nodes={nodes}",
        f"#SBATCH --ntasks-per-node={each}",
        f"#SBATCH --gres={gpu}:{each}",
    )
    sys.stdout.write("\n".join(lines) + "\n")


def _show_cards(columns: Sequence[Column], *, json: bool) -> None:
    """A table for each group of cards, those with the least memory first, or all as JSON: sizes in bytes, null if a
    card cannot run the job.
    """
    if json:
        documents = [
            {
                "preset": preset_file.key,
                "cards": [
                    {
                        "card": one.card.name,
                        "group": one.group,
                        "total_memory": one.card.total_memory,
                        "verdict": one.fit and one.fit.verdict,
                        "process": one.fit and one.fit.needs,
                        "spare": one.fit and one.fit.spare,
                        "vary": one.key,
                        "largest": one.largest,
                        "largest_is_quick": one.is_quick,
                        "fsdp": one.fsdp,
                        "reason": one.reason or None,
                    }
                    for one in cards
                ],
            }
            for preset_file, cards in columns
        ]
        print_json({"schema": 1, "presets": documents})
        return
    wide = text_width()

    for preset_file, cards in columns:
        smallest = []
        for group in CARD_GROUPS:
            fitting = [one.card for one in cards if one.group == group and one.fit is not None and one.fit.is_enough]
            least = min(fitting, key=lambda card: card.total_memory, default=None)
            smallest.append(f"{group} {least.name if least else 'none'}")
        print_wrapped(f"smallest card that fits: {', '.join(smallest)}", wide)
        print_wrapped(preset_file.title, wide)
    if any(card_table.can_share(preset_file.preset.workload) for preset_file, _ in columns):
        print_wrapped(card_table.FSDP_NOTE, wide)
    headings = ["CARD", "MEMORY"]
    for preset_file, cards in columns:
        name = f" {printable(preset_file.key)}" if len(columns) > 1 else ""
        headings += [f"SPARE{name}", card_table.LARGEST_TITLES.get(cards[0].key, "largest").upper()]
        headings += ["FSDP"] if card_table.can_share(preset_file.preset.workload) else []
    for group in CARD_GROUPS:
        rows = []
        for at, first in enumerate(columns[0][1]):
            if first.group != group:
                continue
            row = [first.card.name, format_bytes(first.card.total_memory)]
            for preset_file, cards in columns:
                answer = cards[at]
                row += [answer.spare_label, answer.largest_label]
                row += [answer.fsdp_label] if card_table.can_share(preset_file.preset.workload) else []
            rows.append(row)
        print(f"\n{group}")
        print_table(
            headings, rows, right=[at for at in range(1, len(headings)) if not headings[at].startswith("SPARE")]
        )


def _show_map(preset_file: PresetFile, device: Device, grid: card_table.Grid, *, json: bool) -> None:
    """Print some of the values in GiB, in brackets if they do not fit, and the largest of each row; or all as JSON."""
    from vramtui.estimators.analytic.simulated import unfollowed

    is_quick = not unfollowed(preset_file.preset.workload)
    (across, xs), (down, ys) = grid.across, grid.down
    if json:
        document = {
            "schema": 1,
            "preset": preset_file.key,
            "device": device_document(device),
            "across": {"key": across, "values": [*xs]},
            "down": {"key": down, "values": [*ys]},
            "process": grid.sizes,
            "fits": grid.fits,
            "exact": grid.exact,
            "method": "analytic",
            "quick": is_quick,
        }
        print_json(document)
        return

    def some(count: int, most: int) -> list[int]:
        """Up to `most` places of `count`, evenly chosen, the last among them."""
        return [*range(count)] if count <= most else [round(at * (count - 1) / (most - 1)) for at in range(most)]

    def cell(size: int | None, *, fits: bool) -> str:
        return UNKNOWN if size is None else f"{format_gib(size)} " if fits else f"[{format_gib(size)}]"

    room = format_bytes(device.total_memory)
    quick = "≈ quick figures, which only --gpu simulates: " if is_quick else ""
    print(f"{preset_file.preset.name} on {device.name}: {quick}GiB of the process; [in brackets] is over {room}")
    columns, lines = some(len(xs), COLUMNS), []
    headings = (f"{down} \\ {across}", *(f"{xs[x]:,}" for x in columns), "LARGEST")
    for y in some(len(ys), ROWS):
        fitting = sum(grid.fits[y])
        cells = (cell(grid.sizes[y][x], fits=grid.fits[y][x]) for x in columns)
        lines.append((f"{ys[y]:,}", *cells, f"{xs[fitting - 1]:,}" if fitting else UNKNOWN))
    print_table(headings, lines, right=range(len(headings)))


def _show_models(question: "Question", rooms: "Sequence[Room]", *, every: bool, json: bool) -> None:
    """Print the largest models that fit, a table for each GPU; raises typer.Exit if none fits."""
    from vramtui.monitor.what_fits import headings_of, models_that_fit, row_of

    most = None if every else ROWS + 1  # one more than is shown
    answers = [(room, [*islice(models_that_fit(question, room), most)]) for room in rooms]
    titles = [title for title, _ in question.columns]
    with go_on_unread():
        if json:
            documents = []
            for room, fits in answers:
                models = [
                    {
                        "model": fit.name,
                        "parameters": fit.parameters,
                        "needs": fit.needs,
                        "own_context": fit.own,
                        "contexts": dict(zip(titles, fit.contexts, strict=True)),
                    }
                    for fit in (fits if every else fits[:ROWS])
                ]
                more = not every and len(fits) > ROWS
                known = {"gpu": room.device.name, "memory": room.device.total_memory}
                documents.append({**known, "models": models, "more": more})
            print_json({"schema": 1, "job": question.title, "context": question.context, "gpus": documents})
        else:
            print_wrapped(question.words, text_width())
            for room, fits in answers:
                print(f"\n{room.name}: {'' if fits else 'no model fits'}")
                rows = [row_of(fit) for fit in (fits if every else fits[:ROWS])]
                if rows:
                    headings = headings_of(question)
                    print_table(headings, rows, right=range(1, len(headings)))
                if len(rows) < len(fits):
                    print("Smaller models fit as well; --all lists them.")
    if not any(fits for _, fits in answers):
        raise typer.Exit(NO)
