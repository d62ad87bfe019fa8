"""512-byte blocks: the allocator hands out whole blocks, however small the tensor."""

from math import prod

from vramtui.core.base.units import ITEM_BYTES
from vramtui.core.schema.rule_inputs import BlocksRule
from vramtui.estimators.rules.base import Rule, RuleSheet, block_bytes
from vramtui.estimators.rules.tape import EXPERIMENTS
from vramtui.estimators.torch_facts.allocator_sizes import MIN_BLOCK

SOURCE = f"{EXPERIMENTS}; kMinBlockSize = 512 (c10/core/AllocatorConfig.h)"


def compute(inputs: BlocksRule) -> RuleSheet:
    """ceil(elements x bytes / 512) x 512 for each tensor."""
    sheet = RuleSheet(
        SOURCE, "build", "Requests of more than 1 MiB may get a block that was not split; that is left out."
    )
    item = ITEM_BYTES[inputs.dtype]
    for index, shape in enumerate(inputs.shapes, 1):
        asked = prod(shape) * item
        given = block_bytes(asked)
        sheet.add(
            f"tensor {index}",
            "inputs",
            given,
            f"{shape} {inputs.dtype}: {prod(shape):,} x {item} B = {asked:,} B; {given // MIN_BLOCK} x {MIN_BLOCK} B",
            blocks=given // MIN_BLOCK,
        )
    return sheet


RULE = Rule(id="blocks", title="512-byte blocks", source=SOURCE, takes=BlocksRule, compute=compute)
