"""The out-of-memory message that counts in a log or a paste, whoever wrote it."""

import re

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.observation.oom.arrays import ARRAYS
from vramtui.core.observation.oom.elsewhere import BLOCKS_AND_HOST, LIBRARIES, SIGKILL
from vramtui.core.observation.oom.messages import last, user_line
from vramtui.core.observation.oom.pytorch import PYTORCH
from vramtui.core.observation.oom.report import OomReport
from vramtui.core.observation.oom.servers import SERVERS

# Messages with figures explain those behind them: NCCL's failure and the launcher's SIGKILL follow from an allocator's.
_BY_WEIGHT = ((*PYTORCH, *SERVERS, *ARRAYS), BLOCKS_AND_HOST, LIBRARIES, SIGKILL)
_NO_FAILURE = re.compile(r"The caller indicates that this is not a failure")
_ANY = re.compile(
    r"out of memory|RESOURCE_EXHAUSTED|Resource exhausted|OutOfMemoryError|OutOfDeviceMemory", re.IGNORECASE
)


def read_oom(text: str) -> OomReport:
    """The last out-of-memory message in a log or a paste; one with figures before one without.

    Raises:
        UserError: there is none.
    """
    for messages in _BY_WEIGHT:
        places = ((found, message) for message in messages if (found := last(message.pattern, text, len(text))))
        latest = max(places, key=lambda place: place[0].start(), default=None)
        if latest is not None:
            found, message = latest
            return msgspec.structs.replace(message.report(text, found), line=user_line(text[: found.start()]))
    if _NO_FAILURE.search(text):
        raise UserError("TensorFlow only warns here that it would go faster with more memory: nothing failed")
    if _ANY.search(text):
        return OomReport(program="the message")
    raise UserError(
        "no out-of-memory message is in this text; those of PyTorch, vLLM, SGLang, llama.cpp, JAX, TensorFlow, CuPy,"
        " CUDA's libraries and the kernel are known"
    )
