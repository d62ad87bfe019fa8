"""Workspaces of cuDNN's convolutions: `convolutions.py OUT`, under PyTorch's CUDA build, on a card or an emulated one.

    vramtui run --on T4 --keep-files -- PYTHON benchmarks/convolutions.py t4.json --all

Each convolution of `torch_facts/convolutions_h200.json` runs forward, for its input's gradient and for its weight's.
OUT gets the rows in which any of the three workspaces is another one than there, in the same form; `--all` gives every
row that the card can run. The standard library and torch alone.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))  # works from a checkout that is not installed

from vramtui.estimators.traced.process.cudnn_answers import scratch_of

MEASURED = Path(__file__).parents[1] / "vramtui" / "estimators" / "torch_facts" / "convolutions_h200.json"
PLANE = 2
"""Dimensions of a picture."""


def workspaces(
    form: dict[str, Any], row: list[int], scratch: Callable[[Callable[[], object], int], Any] = scratch_of
) -> list[Any]:
    """Of one convolution, forward, for the input's gradient and for the weight's; in bytes.

    Args:
        form: its type, window, stride, dilation, groups and layout.
        row: images, channels of the input and of the output, the input's sides, the padding of each.
        scratch: of a call and the bytes of its result.
    """
    images, inputs, outputs, *sides = row
    size, padding = sides[: len(sides) // 2], sides[len(sides) // 2 :]
    groups = form.get("groups", 1)
    how = {"device": "cuda", "dtype": getattr(torch, form["dtype"])}
    last = torch.channels_last if len(size) == PLANE else torch.channels_last_3d
    layout = last if form.get("channels_last") else torch.contiguous_format
    tensor = torch.empty((images, inputs, *size), **how).to(memory_format=layout)
    weight = torch.empty((outputs, inputs // groups, *form["window"]), **how).to(memory_format=layout)
    none = [1] * len(size)
    stride, dilation = form.get("stride", none), form.get("dilation", none)

    def forward(device: str = "cuda") -> torch.Tensor:
        found: torch.Tensor = torch.ops.aten.convolution(
            tensor.to(device), weight.to(device), None, stride, padding, dilation, False, [0] * len(size), groups
        )
        return found

    gradient = torch.empty(forward("meta").shape, **how).to(memory_format=layout)  # as CUDA, not meta, gives it
    found = [scratch(forward, gradient.nbytes)]
    for at, result in ((0, tensor), (1, weight)):
        wanted = [at == 0, at == 1, False]

        def backward(wanted: list[bool] = wanted) -> object:
            return torch.ops.aten.convolution_backward(
                gradient, tensor, weight, None, stride, padding, dilation, False, [0] * len(size), groups, wanted
            )

        found.append(scratch(backward, result.nbytes))
    return found


def main() -> None:
    """Measure, and write what differs."""
    rows_of_forms: list[tuple[dict[str, Any], list[list[int]]]] = []
    for form, rows in json.loads(MEASURED.read_bytes()):
        other, numbers = [], 3 + 2 * len(form["window"])
        for row in rows:
            sizes = row[:numbers]
            try:
                now = workspaces(form, sizes)
            except (torch.OutOfMemoryError, RuntimeError) as error:  # a card without that type of numbers, or too small
                print(form, sizes, str(error).partition("\n")[0][:80], file=sys.stderr)
                continue
            if now != row[numbers : numbers + len(now)] or "--all" in sys.argv:
                other.append([*sizes, *now])
        if other:
            rows_of_forms.append((form, other))
        torch.cuda.empty_cache()
    print(f"cuDNN {torch.backends.cudnn.version()}, torch {torch.__version__}, {torch.cuda.get_device_name()}")
    Path(sys.argv[1]).write_text(_as_table(rows_of_forms), encoding="utf-8")


def _as_table(rows_of_forms: list[tuple[dict[str, Any], list[list[int]]]]) -> str:
    """JSON, a line for each form and each row."""
    lines = (f"[{_dense(form)},[\n" + ",\n".join(map(_dense, rows)) + "\n]]" for form, rows in rows_of_forms)
    return "[\n" + ",\n".join(lines) + "\n]\n"


def _dense(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


if __name__ == "__main__":
    main()
