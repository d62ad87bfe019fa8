"""How much is read of a file that somebody else wrote: one table, each figure with its reason. Readers take theirs from
here, and say in one sentence what a larger file has too much of. tests/test_file_limits.py goes over all of it.

Times are of one core of a 2.x GHz server with Python 3.11. Where a depth is None the parser ends by itself: msgspec's
JSON and tomllib at Python's own limit of recursion, and a header of safetensors has no levels.
"""

import msgspec

from vramtui.core.base.units import GIB, MIB


class FileLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of one format.

    Attributes:
        what: what no such file is, in a sentence: `FILE is larger than 1 MiB, which no {what} is`.
        size: bytes that are read at most; of the header where the rest is not read.
        depth: levels of lists and tables within each other.
        count: values in it: keys, tensors, rows or nodes.
        ratio: how many times its own size it may unpack to, beyond `spare` bytes.
        spare: bytes that are never too many.
        seconds: of one processor that the reader may take; None if size and count bound that.
    """

    what: str
    size: int
    depth: int | None = None
    count: int | None = None
    ratio: int | None = None
    spare: int = 0
    seconds: float | None = None


# The largest bundled preset has 6.4 KB and 130 values; a table of two thousand tensors 100 KB and 12,000. tomllib takes
# 12 us a value, so that 50,000 are read in 0.6 s.
PRESET = FileLimits(what="preset", size=MIB, count=50_000)
# Of one dotted key; ours have four. tomllib needs a time that grows with the square of them.
MOST_KEY_PARTS = 16


# Of 1,498 training configurations of other programs, none larger than 128 KiB, the largest had 9,143 values and the
# deepest 15 levels. YAML takes 25 us a value and, in brackets, more the deeper it is: the largest takes half a second.
TRAINING = FileLimits(what="training configuration", size=1 << 17, depth=32, count=20_000)
# Of its values, those that are looked at; Accelerate's, DeepSpeed's and Axolotl's have under 200, eight levels at most.
MOST_KEYS, DEEPEST_KEY = 2000, 8

# NVIDIA's config.json of MiniMax M3, which names the format of each expert's layers, has 3 MB.
CONFIG = FileLimits(what="config.json", size=8 * MIB)
# Layers are counted one by one. The deepest transformer that was published has 1,000 (DeepNet, arXiv 2203.00555).
MOST_LAYERS = 4096
INDEX = FileLimits(what="index", size=32 * MIB, count=1 << 17)  # a line for each tensor: 100,000 of them come to 10 MB
# `safetensors` itself refuses a header of more than 100 MB (safetensors/src/tensor.rs, MAX_HEADER_SIZE). The model with
# the most tensors, a mixture of 256 experts in 61 layers, has 91,991 in all its files.
SAFETENSORS = FileLimits(what="safetensors file", size=100 * 1000 * 1000, count=1 << 17)
# Vocabularies are most of a header: 262,144 words and their scores are 6 MB. Lists within lists llama.cpp never writes.
GGUF = FileLimits(what="model file", size=100 * 1000 * 1000, depth=4, count=1 << 22)
MOST_GGUF_KEYS, MOST_GGUF_TENSORS, MOST_GGUF_LISTS = 1 << 16, 1 << 17, 1 << 12
# ggml knows four dimensions (GGML_MAX_DIMS) and names of 64 bytes; long strings, chat templates, are passed over.
MOST_GGUF_DIMENSIONS, LONGEST_GGUF_STRING = 4, 1 << 16

# A snapshot of a million events with their stacks has 1 to 2 GB. A pickle's values take up to 100 bytes for one in the
# file: an empty list is one byte, and 56 with its place in another. gzip makes a twentieth of a snapshot, and a
# thousandth of what is made to fill a memory.
SNAPSHOT = FileLimits(what="memory snapshot", size=4 * GIB, ratio=200, spare=64 * MIB)
PICKLED_TIMES, PICKLED_SPARE = 100, 256 * MIB

# A run is 2 to 6 KB of JSON, and a year of hundred runs a day 36,500 of them. Whatever a database is made to look up,
# its user waits no longer than this; 36,500 runs are looked up in 0.3 s.
HISTORY = FileLimits(what="run", size=MIB, seconds=1.0)
RECORDING = FileLimits(what="sample", size=64 * MIB)  # a sample of 1,024 cards with 65,536 processes is 20 MB
# What the simulated GPU's driver (dryrun/cuda/c/report.c) and the probe write of one process: 64 KiB of names at
# most, and a line for each place that reads.
DRIVER_REPORT = FileLimits(what="report of an emulated card", size=MIB, count=4096)
READ_PLACES = FileLimits(what="list of reads", size=4 * MIB, count=20_000)
# What a run reports about its simulated GPU, three paths; and the trace that it hands on, thinned to some 100 KB.
CARD_IN_USE = FileLimits(what="announcement of a card", size=1 << 14)
JOB_TRACE = FileLimits(what="dry run of a job", size=32 * MIB)
# The first MiB of a log names the job, its end the failure; the middle of a longer one is not read.
LOG = FileLimits(what="log", size=6 * MIB)
