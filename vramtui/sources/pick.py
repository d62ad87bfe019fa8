"""Which source sees this machine's GPUs."""

from vramtui.core.source import Source


def pick_source() -> Source:
    """NVML where it can be talked to, else nvidia-smi.

    Raises:
        SourceFailed: neither answers; says why each does not, and what to do.
    """
    from vramtui.sources.nvml import NvmlSource  # noqa: PLC0415 - an unfit pynvml is a reason to say, not a crash

    nvml = NvmlSource()
    nvml.open()
    return nvml
