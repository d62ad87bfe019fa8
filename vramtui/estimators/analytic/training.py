"""A training job followed through its phases: what is held at each moment, and which moment is the fullest."""

from vramtui.core.devices import Device
from vramtui.core.estimate import Estimate
from vramtui.core.models import TransformerModel
from vramtui.core.workload import TrainRun
from vramtui.estimators.analytic.assembly import Moments, assemble
from vramtui.estimators.analytic.blocks import rounded
from vramtui.estimators.analytic.job import Job, job_of
from vramtui.estimators.analytic.loss import Loss, loss_of
from vramtui.estimators.analytic.saved import CASTS, MLP, Saved, saved_by_layer, saved_by_norm, weight_casts
from vramtui.estimators.analytic.states import Held, held, optimizer_states, step_temporaries
from vramtui.estimators.analytic.tensors import Tensor, adapter_tensors, model_tensors
from vramtui.estimators.analytic.training_parts import training_facts
from vramtui.estimators.analytic.transients import attention_backward, mlp_backward, stream_gradient
from vramtui.estimators.analytic.workspaces import workspace_bytes

STREAM = "activations: residual stream"
HEAD = "activations: output layer and loss"
MOVING = "gradients of activations"


class Trainer:
    """One training job's sizes, worked out part by part; `estimate` follows it through two steps."""

    def __init__(self, model: TransformerModel, run: TrainRun, device: Device) -> None:
        self.model, self.run, self.device = model, run, device
        self.job: Job = job_of(model, run)
        self.base = model_tensors(model)
        self.trained: tuple[Tensor, ...] = adapter_tensors(model, run.lora) if run.lora else self.base
        recipe = self.job.recipe
        frozen = held(self.base, recipe.frozen) if run.lora else Held()
        self.weights = frozen + held(self.trained, recipe.weights)
        self.gradients = held(self.trained, recipe.weights)
        fused = run.optimizer_implementation == "fused"
        self.states = optimizer_states(self.trained, recipe.weights, run.optimizer, fused=fused)
        self.temporaries = step_temporaries(self.trained, recipe.weights, run.optimizer, run.optimizer_implementation)
        self.layer: list[Saved] = saved_by_layer(self.job)
        self.loss: Loss = loss_of(self.job)
        self.inputs = 2 * rounded(8 * self.job.tokens)
        self.workspace = workspace_bytes(device.capability)

    def estimate(self) -> Estimate:
        """Follow steps 0 and 1; from then on every step is like step 1."""
        moments = Moments()
        moments.note("build", 0, self._weights())
        for step in (0, 1):
            self._step(moments, step)
        return assemble(moments, training_facts(self), self.device)

    def _step(self, moments: Moments, step: int) -> None:
        resting = self._weights() | (self._states() if step else {})
        forward_only = resting | {"workspaces": self.workspace * (2 if step else 1), "inputs": self.inputs}
        fed = forward_only | {"workspaces": self.workspace * 2}
        accumulated = self._gradients(1.0) if self.run.gradient_accumulation_steps > 1 else {}
        moments.note("input", step, forward_only if step else resting | {"inputs": self.inputs})
        moments.note("forward", step, forward_only | accumulated | self._in_forward(), end=False)
        moments.note("forward", step, forward_only | accumulated | self._kept(self.loss.kept))
        moments.note("backward", step, fed | accumulated | self._kept(self.loss.in_backward), end=False)
        for held_now in self._backward():
            moments.note("backward", step, fed | held_now | accumulated, end=False)
        backward_done = fed | self._gradients(1.0)
        moments.note("backward", step, backward_done)
        stepping = backward_done | self._states() | {"step temporaries": self.temporaries.whole}
        moments.note("step", step, stepping, end=False)
        moments.note("step", step, backward_done | self._states())
        moments.note("zero_grad", step, fed | self._states())

    def _weights(self) -> dict[str, int]:
        return {"weights": self.weights.bytes, "weight tails": self.weights.tails}

    def _states(self) -> dict[str, int]:
        return {"optimizer": self.states.bytes, "optimizer tails": self.states.tails}

    def _gradients(self, share: float) -> dict[str, int]:
        return {"gradients": int(self.gradients.bytes * share), "gradient tails": int(self.gradients.tails * share)}

    def _groups(self, layers: int) -> dict[str, int]:
        """What `layers` blocks have saved, by part."""
        groups: dict[str, int] = {}
        for saved in self.layer:
            groups[saved.group] = groups.get(saved.group, 0) + saved.total * layers
        return groups

    def _stored(self, layers: int) -> dict[str, int]:
        """What the forward pass leaves of `layers` blocks: everything, or with checkpointing their inputs."""
        if self.run.checkpointing == "none":
            return self._groups(layers)
        width = rounded(self.job.tokens * self.model.hidden_size * self.job.recipe.stream)
        return {STREAM: width * layers}

    def _kept(self, loss: int) -> dict[str, int]:
        """What is kept when the forward pass is through, with `loss` bytes of logits."""
        return _add(self._stored(self.model.num_hidden_layers), {HEAD: loss + self._head_input()}, self._ends())

    def _ends(self) -> dict[str, int]:
        """The final norm, and autocast's copy of the output layer's weights."""
        groups: dict[str, int] = {}
        for saved in saved_by_norm(self.job):
            groups[saved.group] = groups.get(saved.group, 0) + saved.total
        if self.job.recipe.autocast and not self.job.lora:
            groups[CASTS] = rounded(self.model.vocab_size * self.model.hidden_size * self.job.recipe.compute)
        return groups

    def _head_input(self) -> int:
        return rounded(self.job.tokens * self.model.hidden_size * self.job.recipe.compute)

    def _in_forward(self) -> dict[str, int]:
        """The fullest moment of the forward pass: the loss, or one block of it when checkpoints keep the rest small."""
        kept = self._kept(self.loss.in_forward)
        if self.run.checkpointing == "none" or not self.job.recipe.autocast:
            return kept
        # Autocast's cache holds every cast weight until the forward pass is over, whatever is checkpointed.
        casts = sum(saved.total for saved in weight_casts(self.job)) * self.model.num_hidden_layers
        return _add(kept, {CASTS: casts})

    def _backward(self) -> list[dict[str, int]]:
        """The backward pass of the last and of the first block: between them everything changes evenly.

        In each block the MLP comes first; when the attention's turn comes, what the MLP had saved is gone.
        """
        layers = self.model.num_hidden_layers
        block = self._groups(1)
        recomputed = {} if self.run.checkpointing == "none" else block
        spent = {MLP: -block.get(MLP, 0)}
        stream = stream_gradient(self.job)
        in_mlp, in_attention = stream + mlp_backward(self.job), stream + attention_backward(self.job)
        moments: list[dict[str, int]] = []
        for stored, share in ((layers, self._head_share()), (1, self._all_but_first_share())):
            start = _add(self._stored(stored), recomputed, self._gradients(share))
            moments += [_add(start, {MOVING: in_mlp}), _add(start, spent, {MOVING: in_attention})]
        return moments

    def _head_share(self) -> float:
        """Which share of the gradients exists once the output layer's backward pass is through."""
        if self.run.lora:
            return 0.0
        head = self.model.vocab_size * self.model.hidden_size
        return head / sum(tensor.numel * tensor.count for tensor in self.trained)

    def _all_but_first_share(self) -> float:
        """The same when the backward pass has come to the first block."""
        inside = sum(tensor.numel * tensor.count for tensor in self.trained if tensor.layer)
        total = sum(tensor.numel * tensor.count for tensor in self.trained)
        return self._head_share() + inside / total * (1 - 1 / self.model.num_hidden_layers)


def estimate_training(model: TransformerModel, run: TrainRun, device: Device) -> Estimate:
    """The estimate for a training job.

    Raises:
        UserError: the workload contradicts itself.
    """
    return Trainer(model, run, device).estimate()


def _add(*parts: dict[str, int]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, size in part.items():
            total[name] = total.get(name, 0) + size
    return total
