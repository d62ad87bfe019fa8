"""Map and words about one cell, which come from two searches: they say the same at all times."""

from collections.abc import Sequence

from vramtui.app.plan.axes import Axis
from vramtui.app.plan.grid import Cells, GridCells
from vramtui.core.estimate.fits import fits_in
from vramtui.estimators.planner.planner import Edge

# The keys of the sizes that are varied, of which the largest is looked for.
SIZE_KEYS = {
    "batch": "run.batch_size",
    "seq": "run.sequence_length",
    "sequences": "run.max_num_seqs",
    "context": "run.max_model_len",
}


def agreeing(sheet: GridCells, cursor: tuple[int, int], process: int | None, edges: Sequence[Edge]) -> Cells:
    """The cells of a map, of which those beside the cursor agree with what is said of its cell.

    What the nearer method has not answered yet stands on the side of the limit that the largest size puts it on, as
    near as its quick figure is; the cursor's own cell has the figure that stands beside the map.

    Args:
        sheet: the map.
        cursor: column and row of the cell.
        process: its bytes as they stand beside the map; None where they are not known.
        edges: its largest sizes, as far as they are known.
    """
    rows = [list(row) for row in sheet.cells()]
    asked = sheet.question
    room, largest = asked.device.total_memory, {edge.key: edge.largest or 0 for edge in edges}

    def agree(x: int, y: int, axis: Axis, at: int) -> None:
        answer, most, amount = rows[y][x], largest.get(SIZE_KEYS.get(axis.name, "")), axis.amounts[at]
        if answer is None or answer.process is None or answer.reason or (x, y) in sheet.near_cells:
            return
        if most is not None and isinstance(amount, int):
            process = min(answer.process, room) if amount <= most else max(answer.process, room + 1)
            rows[y][x] = answer._replace(process=process, fits=amount <= most)

    for x in range(len(asked.x.amounts)):
        agree(x, cursor[1], asked.x, x)
    for y in range(len(asked.y.amounts)):
        agree(cursor[0], y, asked.y, y)
    here = rows[cursor[1]][cursor[0]]
    if process is not None and here is not None and not here.reason:
        rows[cursor[1]][cursor[0]] = here._replace(process=process, fits=fits_in(process, room))
    return tuple(tuple(row) for row in rows)
