"""What recordings of a stubbed driver know of cuDNN: it chose its convolutions' engines without a device."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from vramtui.estimators.torch_facts.convolutions import WITHOUT_DEVICE


@contextmanager
def cudnn_without_device() -> Iterator[None]:
    """Estimates and traces meanwhile take its workspaces, as what they are held against does."""
    with patch.dict(os.environ, {WITHOUT_DEVICE: "1"}):
        yield
