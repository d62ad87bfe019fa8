"""The rows of a host: every process, what else holds its GPUs' memory, and the processes that have gone."""

from collections.abc import Mapping, Sequence

import msgspec

from vramtui.app.state.row import exited_rows, last_answer, process_row, remainders, worth_a_row
from vramtui.app.state.view import HeldTotals, ProcessRow, RowId
from vramtui.core.observation.history import History
from vramtui.core.observation.readings import Gpu, Process, Sample, instance_names


class ProcessRows(list[ProcessRow]):
    """Every row in the order of the sample: GPU by GPU, then the processes that have gone. The `now` of a GPU's rows,
    what is folded into `totals` and its free bytes add up to its total. A GPU that does not answer has the rows of its
    last answer, with their age.

    Args:
        sample: what is shown.
        history: what was seen until then.
        answered: by uuid, when each GPU answered last and what it said.
        whole: nothing is folded: what drivers keep and small remainders have rows, too.

    Attributes:
        totals: what stands below the rows.
    """

    def __init__(
        self,
        sample: Sample,
        history: History,
        answered: Mapping[str, tuple[float, Gpu]],
        *,
        whole: bool = False,
    ) -> None:
        super().__init__()
        folded: list[ProcessRow] = []
        users: dict[str | None, int] = {}
        alike = len({gpu.uuid for gpu in sample.gpus}) < len(sample.gpus)  # as a recording may say, or a broken driver
        for told in sample.gpus:
            gpu, age = last_answer(sample, told, answered)
            tracks = history.here(sample.host.name, gpu.uuid)
            processes: Sequence[Process] = gpu.processes
            if alike or len(tracks) != len(processes) or "processes" in gpu.absent:
                processes = [process for process in processes if process.pid in tracks]
            for process in processes:
                self.append(process_row(gpu, process, tracks[process.pid], age, sample.taken_at))
                if process.used_memory:
                    users[process.user] = users.get(process.user, 0) + process.used_memory
            grown = history.grown(sample.host.name, gpu.uuid) if (gpu.unattributed or 0) < 0 else None
            rest = remainders(gpu, age, sample.host, grown)
            folded += [] if whole else rest
            self += [row for row in rest if whole or worth_a_row(row)]
        self += exited_rows(sample, history)
        names = instance_names(sample.gpus)
        if names:
            self[:] = [msgspec.structs.replace(row, gpus=names.get(row.gpu.uuid, "")) for row in self]
        self.totals = _totals(users, folded)

    def has(self, wanted: RowId) -> bool:
        """Whether there is such a row."""
        return any(row.id == wanted for row in self)


def _totals(users: Mapping[str | None, int], folded: Sequence[ProcessRow]) -> HeldTotals:
    driver = sum(row.gpu.memory.reserved or 0 for row in folded if row.kind == "reserved")
    return HeldTotals(
        held=sum(users.values()),
        users=tuple(sorted(((user or "", held) for user, held in users.items()), key=lambda one: -one[1])),
        driver=driver,
        unattributed=sum(row.now or 0 for row in folded if row.kind != "instances") - driver,
    )
