"""What the numbers of NVIDIA's XID errors mean, by the page "Xid Errors" of NVIDIA's GPU deployment guide (r580)."""

from typing import Final

MEANINGS: Final[dict[int, str]] = {
    13: "a kernel of a job failed, or touched memory that it may not (graphics engine exception)",
    31: "a job touched memory that it does not have (GPU memory page fault)",
    32: "a job's commands arrived damaged: driver, PCIe or the job itself (invalid push buffer)",
    38: "the driver's firmware failed",
    43: "a job's own error ended its work on the GPU; the GPU is in order",
    45: "a job's work was cleaned up after an earlier error, or because the job was ended",
    48: "memory has an error of two bits that cannot be corrected: reset the GPU",
    61: "a microcontroller of the GPU warns",
    62: "a microcontroller of the GPU stands still: reset the GPU",
    63: "a row of memory was noted to be replaced: it is at the next reset",
    64: "a row of memory could not be noted to be replaced: reset the GPU",
    68: "the video decoder failed",
    69: "a kernel of a job failed (graphics engine class error)",
    74: "an NVLink connection failed: see both GPUs at its ends",
    79: "the GPU has fallen off the bus: restart the host, then look at power, heat and its seat",
    92: "many errors of one bit in memory, all corrected",
    94: "an uncorrectable memory error ended the job that had that memory, and no other",
    95: "an uncorrectable memory error that other jobs may have met as well: reset the GPU",
    109: "a job's context could not be switched in time",
    119: "the GPU's own processor (GSP) does not answer the driver: reset the GPU",
    120: "the GPU's own processor (GSP) failed: reset the GPU",
    137: "a job used another GPU's memory without leave over NVLink",
    140: "memory has an error that could not be corrected: reset the GPU",
    143: "the GPU could not be initialised",
    154: "the driver says that the GPU has to be reset, or the host restarted",
}


def xid_sentence(code: int) -> str:
    """The number and what it means, as far as it is known here."""
    meaning = MEANINGS.get(code)
    return f"XID {code}: {meaning}" if meaning else f"XID {code} (see NVIDIA's list of Xid errors)"
