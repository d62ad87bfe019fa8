"""Run SCRIPT where torch.nn's encoder finds its mask causal, as on a card: `python causal_mask.py SCRIPT ARGUMENTS`.

The encoder compares its mask with the causal one (`_detect_is_causal_mask`, torch/nn/modules/transformer.py), and on a
stubbed driver every comparison reads as no. For scripts whose mask is the causal one.
"""

import runpy
import sys
from pathlib import Path

from torch.nn.modules import transformer


def main() -> None:
    """Answer for the mask, then run the script as it is."""

    def is_causal_mask(mask: object, is_causal: bool | None = None, size: int | None = None) -> bool:  # noqa: ARG001 - as torch calls it
        return mask is not None if is_causal is None else is_causal

    vars(transformer)["_detect_is_causal_mask"] = is_causal_mask
    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    runpy.run_path(sys.argv[0], run_name="__main__")


main()
