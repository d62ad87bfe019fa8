"""A mixture of experts: a router (x, h), all experts in two tensors (x, 2·f, h) and (x, h, f), and a shared expert.

x experts, h hidden, f width of an expert; without a gate the first is (x, f, h).
"""

from typing import ClassVar

from vramtui.models.kinds.linear import LinearModule
from vramtui.models.kinds.mlp import MlpModule
from vramtui.models.spec import Kind, Module


class MoeModule(Module, frozen=True, kw_only=True):
    """Experts of `width`, of which each token is sent to `per_token`, and a shared one of `shared` where not 0."""

    kind: ClassVar[Kind] = "moe"
    hidden: int
    experts: int
    per_token: int
    width: int
    gated: bool = True
    router_bias: bool = False
    shared: int = 0
    shared_gate: bool = False

    def parts(self) -> tuple[Module, ...]:
        """Router, experts, shared expert and its gate."""
        d, f = self.hidden, self.width
        wide = 2 * f if self.gated else f
        parts: list[Module] = [
            LinearModule(name="router", out_features=self.experts, in_features=d, bias=self.router_bias),
            LinearModule(name="experts_gate_up_proj", out_features=wide, in_features=d, copies=self.experts),
            LinearModule(name="experts_down_proj", out_features=d, in_features=f, copies=self.experts),
        ]
        if self.shared:
            parts.append(self.shared_expert())
        if self.shared_gate:
            parts.append(LinearModule(name="shared_gate", out_features=1, in_features=d))
        return tuple(parts)

    def shared_expert(self) -> MlpModule:
        """What every token is sent to."""
        return MlpModule(name="shared_", hidden=self.hidden, width=self.shared, gated=self.gated)

    def adapted(self) -> MlpModule:
        """One of the experts, by its layers: peft puts adapters beside none of them."""
        return MlpModule(hidden=self.hidden, width=self.width, gated=self.gated)
