"""`vramtui card`: one job on one card as a picture to share."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from vramtui.cli.common.exit_codes import exit_on_user_error
from vramtui.cli.estimate.command import changed_preset, fit_of, naming_setting
from vramtui.cli.options.command_options import command_of, job_flags
from vramtui.cli.options.shared_job import shared_over
from vramtui.cli.options.shared_options import CardOptions, JobName, Settings
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.estimate.devices import chosen_device, group_of
from vramtui.core.schema.workload import own_length

KINDS = (".svg", ".png")


@dataclass(frozen=True, kw_only=True)
class PictureOptions(CardOptions):
    """What `vramtui card` takes."""

    preset: JobName
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="An .svg, or a .png; vramtui-card-PRESET.svg by default."),
    ] = None
    settings: Settings = None


@command_of(PictureOptions, flags=job_flags("gpus"))
def card(options: PictureOptions) -> None:
    """A picture to share: title, card, verdict and the stacked memory of a job.

    SVG needs nothing; PNG is drawn by librsvg, Inkscape or a browser on this machine. Never overwrites a file.
    """
    with exit_on_user_error():
        preset_file, device = (
            changed_preset(options.preset, options.settings or []),
            chosen_device(options.gpu, options.memory),
        )
        preset_file = preset_file if options.gpus is None else shared_over(preset_file, device, options.gpus)
        stem = "".join(letter if letter.isalnum() or letter in "-._" else "-" for letter in preset_file.key)
        path = options.output or Path(f"vramtui-card-{stem}.svg")
        if path.suffix not in KINDS:
            raise UserError(f"{printable(path.name)} is neither an .svg nor a .png")
        if path.exists():
            raise UserError(f"{printable(str(path))} is there already; name another file with --output")
        from vramtui.estimators.analytic import ANALYTIC
        from vramtui.estimators.methods import DEFAULT
        from vramtui.estimators.planner.card_table import CardFit
        from vramtui.estimators.planner.keys import usual_key
        from vramtui.estimators.planner.planner import Planner
        from vramtui.records.export.share_card import share_card

        workload = preset_file.preset.workload
        with naming_setting(preset_file):
            estimate = DEFAULT.estimate(workload, device)
        key = usual_key(workload)
        edge = Planner(ANALYTIC, workload, device, exact=DEFAULT).edge(key)
        fit, group, own = fit_of(preset_file, estimate, device), group_of(device.name), own_length(workload)
        there = CardFit(card=device, group=group, fit=fit, key=key, largest=edge.largest, own=own)
        words = {"run.batch_size": "largest batch", "run.max_model_len": "longest context"}.get(there.key, "")
        largest = f"{words} {there.largest_label}" if words and there.largest is not None else ""
        drawn = share_card(preset_file, device, estimate, fit, largest)
        try:
            if path.suffix == ".png":
                from vramtui.cli.common.renderer import png_of

                png_of(drawn, path)
            else:
                from vramtui.presets.toml.whole_files import write_new

                write_new(path, drawn.encode())
        except OSError as error:
            raise UserError(f"{printable(str(path))} cannot be written: {error.strerror}") from None
        print(printable(str(path)))
