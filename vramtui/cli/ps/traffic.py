"""What goes over PCIe, measured for `vramtui ps --traffic`: no sample has it of a driver that counts it in 32 bits."""

import sys
import threading
from collections.abc import Sequence

import msgspec

from vramtui.cli.common.console import print_wrapped, table_width
from vramtui.core.base.units import format_bytes
from vramtui.core.observation.readings import Absence, Gpu, Sample, gpu_name, instance_names
from vramtui.core.observation.source import PcieTraffic, Source, TrafficSource, with_traffic

LONGEST = 1.0  # seconds for all cards at once; a driver that takes longer hangs


class MeasuredTraffic:
    """Another source's samples, with the traffic of each GPU that they have none of.

    Args:
        source: what is read.
    """

    def __init__(self, source: Source) -> None:
        self.name = source.name
        self._source = source

    def read(self) -> Sample:
        """What there is to see.

        Raises:
            SourceFailed: the source says nothing.
        """
        sample = self._source.read()
        source = self._source
        if not isinstance(source, TrafficSource):
            return sample
        answers: dict[str, PcieTraffic | Absence] = {}
        asked = [gpu.uuid for gpu in sample.gpus if gpu.state == "ok" and gpu.pcie_sent is None]

        def ask(uuid: str) -> None:
            answers[uuid] = source.measure_traffic(uuid)

        threads = [threading.Thread(target=ask, args=(uuid,), daemon=True) for uuid in asked]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONGEST / len(threads))
        known = {uuid: answers.get(uuid, Absence.NO_ANSWER) for uuid in asked}
        gpus = tuple(with_traffic(gpu, known[gpu.uuid]) if gpu.uuid in known else gpu for gpu in sample.gpus)
        return msgspec.structs.replace(sample, gpus=gpus)

    def close(self) -> None:
        self._source.close()


def print_traffic(gpus: Sequence[Gpu]) -> None:
    """A line below the table: what each GPU sends and receives, or why that is not known."""
    names = instance_names(gpus)
    facts = [f"GPU {gpu_name(gpu, names)} {_rates(gpu)}" for gpu in gpus if gpu.state == "ok"]
    print_wrapped(f"over PCIe, sent and received: {', '.join(facts)}", table_width())
    sys.stdout.flush()


def _rates(gpu: Gpu) -> str:
    if gpu.pcie_sent is None or gpu.pcie_received is None:
        return gpu.absent.get("pcie_sent", Absence.FAILED).value.replace("_", " ")
    return f"{format_bytes(gpu.pcie_sent)}/s and {format_bytes(gpu.pcie_received)}/s"
