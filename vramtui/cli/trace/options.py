"""The options of `vramtui trace` that compare it with a baseline; `baseline` does what they ask."""

from pathlib import Path
from typing import Annotated

import typer

Baseline = Annotated[Path | None, typer.Option(metavar="FILE", help="Compare with the peaks accepted in this file.")]
FailOver = Annotated[
    str, typer.Option(metavar="SHARE", help="How much more than the baseline passes: 2%; 0% by default.")
]
UpdateBaseline = Annotated[bool, typer.Option("--update-baseline", help="Write the peaks into the baseline.")]
Markdown = Annotated[Path | None, typer.Option(metavar="FILE", help="Add the comparison as a table to this file.")]
AllocConf = Annotated[str, typer.Option(metavar="CONF", help="What PYTORCH_CUDA_ALLOC_CONF would say.")]
ShowOutput = Annotated[bool, typer.Option("--show-output", help="Let what the code prints through, to standard error.")]
SeparateLtWorkspace = Annotated[
    bool, typer.Option(help="A cuBLASLt workspace of its own, as PyTorch up to 2.11 keeps it.")
]
Share = Annotated[
    float,
    typer.Option(min=0, max=1, help="Where data decides how many (x\\[mask], nonzero): count this part; 1 is a bound."),
]
Ranks = Annotated[
    int, typer.Option(min=0, help="Ranks of the distributed job, whose rank 0 is traced; 0 goes by WORLD_SIZE.")
]
