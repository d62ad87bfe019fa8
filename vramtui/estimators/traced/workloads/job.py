"""A preset's run as a job: a loop of the kind that everybody writes, in the order that the recorded runs have."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from vramtui.core.schema.decoder_models import HuggingFaceModel, TransformerModel
from vramtui.core.schema.layer_models import ConvNetModel, Embedding, SequentialModel
from vramtui.core.schema.workload import InferRun, TrainRun, Workload
from vramtui.estimators.traced.workloads.configs import config_of
from vramtui.estimators.traced.workloads.decoders import PlainGPT, build_from_config, decoded
from vramtui.estimators.traced.workloads.layers import build_convnet, build_layers
from vramtui.estimators.traced.workloads.limits import check

_DEVICE = "cuda"
_TOKENS = 1024
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
_AUTOCAST = {"bf16-mixed": torch.bfloat16, "fp16-mixed": torch.float16}
_BACKENDS = {"efficient": SDPBackend.EFFICIENT_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
Batch = tuple[torch.Tensor, torch.Tensor]


class WorkloadJob:
    """A model on the device, its batches and its loss.

    Attributes:
        model: the module, on the CPU until it is moved.
        by_transformers: whether it is a model of that library, which takes labels and a cache.
    """

    def __init__(self, workload: Workload) -> None:
        check(workload)
        run = workload.run
        assert isinstance(run, (TrainRun, InferRun))
        self.run, self._workload = run, workload
        self._dtype = _DTYPES.get(run.precision)
        self.by_transformers = False
        self.batch, self.model = self._built()
        if isinstance(workload.model, (SequentialModel, ConvNetModel)):
            torch.backends.cudnn.enabled = workload.model.cudnn

    def place(self) -> None:
        """Move the model to the device, in the type it is kept in."""
        self.model = self.model.to(_DEVICE, self._dtype) if self._dtype else self.model.to(_DEVICE)

    def cast(self, x: torch.Tensor) -> torch.Tensor:
        """A batch in the model's type."""
        return x.to(self._dtype) if self._dtype and x.is_floating_point() else x

    def autocast(self) -> AbstractContextManager[Any]:
        """What a step's forward pass runs under."""
        dtype = _AUTOCAST.get(self.run.precision)
        return nullcontext() if dtype is None else torch.autocast(_DEVICE, dtype=dtype)

    def attention(self) -> AbstractContextManager[Any]:
        """The kernel asked for; PyTorch's own choice where that is `flash`, the best it has."""
        backend = _BACKENDS.get(self.run.attention)
        return nullcontext() if backend is None else sdpa_kernel(backend)

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """The loss of a batch, computed as the model's kind does."""
        model = self._workload.model
        if self.by_transformers:
            loss = self.model(input_ids=x, labels=y, use_cache=False).loss
            assert isinstance(loss, torch.Tensor)
            return loss
        out = self.model(x)
        if isinstance(model, SequentialModel) and model.loss == "sum":
            out = out.sum()
            assert isinstance(out, torch.Tensor)
            return out
        if isinstance(model, SequentialModel) and model.loss == "mse":
            return functional.mse_loss(out, y)
        return functional.cross_entropy(out.reshape(-1, out.shape[-1]), y.reshape(-1))

    def _built(self) -> tuple[Callable[[], Batch], Any]:
        model, run = self._workload.model, self.run
        eager = run.attention == "eager"
        again = isinstance(run, TrainRun) and run.checkpointing == "full"
        if isinstance(model, SequentialModel):
            built, shape = build_layers(model, eager=eager, again=again)
            return self._samples(model, shape), built
        if isinstance(model, ConvNetModel):
            size = (run.batch_size, model.num_channels, model.image_size, model.image_size)
            return self._classes(size, (run.batch_size,), model.num_classes), build_convnet(model, again=again)
        if isinstance(model, TransformerModel) and model.implementation == "plain":
            return self._tokens(model.vocab_size, model.max_position_embeddings), PlainGPT(
                model, eager=eager, again=again
            )
        assert isinstance(model, (TransformerModel, HuggingFaceModel))
        config = config_of(model) if isinstance(model, TransformerModel) else decoded(model.config)
        self.by_transformers = True
        language = build_from_config(config, attention=run.attention, again=again)
        longest = getattr(language.config, "max_position_embeddings", None)
        return self._tokens(language.config.get_text_config().vocab_size, longest), language

    def _tokens(self, vocabulary: int, longest: int | None) -> Callable[[], Batch]:
        shape = (self.run.batch_size, self.run.sequence_length or longest or _TOKENS)

        def draw() -> Batch:
            first = torch.randint(0, vocabulary, shape, device=_DEVICE)
            return first, torch.randint(0, vocabulary, shape, device=_DEVICE)

        return draw

    def _classes(self, size: tuple[int, ...], targets: tuple[int, ...], classes: int) -> Callable[[], Batch]:
        def draw() -> Batch:
            x = torch.randn(size, device=_DEVICE)
            y = torch.randint(0, classes, targets, device=_DEVICE)
            return x, y

        return draw

    def _samples(self, model: SequentialModel, shape: tuple[int, ...]) -> Callable[[], Batch]:
        size = (self.run.batch_size, *model.input_shape)
        first = model.layers[0]
        if isinstance(first, Embedding):
            rows = first.num_embeddings

            def looked_up() -> Batch:
                x = torch.randint(0, rows, size, device=_DEVICE)
                return x, torch.randint(0, shape[-1], size[:2], device=_DEVICE)

            return looked_up
        if model.loss == "mse":
            return lambda: (
                torch.randn(size, device=_DEVICE),
                torch.randn((size[0], *shape), device=_DEVICE, dtype=self._dtype),
            )
        return self._classes(size, (size[0], *shape[:-1]), shape[-1])


def run_workload(workload: Workload) -> object:
    """Train without end, until the trace has seen its steps, or infer once; what is returned is still alive then.

    Raises:
        UserError: the workload is not one that is built here.
    """
    job = WorkloadJob(workload)
    if isinstance(job.run, TrainRun):
        job.model.train()
        job.place()
        with job.attention():
            return job, _train(job, job.run)
    job.model.eval()
    job.place()
    with job.attention(), torch.inference_mode():
        return job, _generate(job, job.run) if job.by_transformers else _infer(job)


def _train(job: WorkloadJob, run: TrainRun) -> object:
    optimizer = _optimizer(run, [parameter for parameter in job.model.parameters() if parameter.requires_grad])
    scaler = torch.amp.GradScaler(_DEVICE) if run.precision == "fp16-mixed" else None
    while True:
        for _ in range(run.gradient_accumulation_steps):
            # The old batch and loss are alive while the new ones are made.
            x, y = job.batch()
            x = job.cast(x)
            with job.autocast():
                loss = job.loss(x, y)
            (scaler.scale(loss) if scaler else loss).backward()
        if run.max_grad_norm is not None:
            if scaler:
                scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(job.model.parameters(), run.max_grad_norm)
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def _optimizer(run: TrainRun, parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
    how: dict[str, Any] = {"foreach": run.stepping == "foreach"}
    if run.stepping == "fused":
        how = {"fused": True}
    kinds: dict[str, Callable[[], torch.optim.Optimizer]] = {
        "sgd": lambda: torch.optim.SGD(parameters, lr=1e-3, **how),
        "momentum": lambda: torch.optim.SGD(parameters, lr=1e-3, momentum=0.9, **how),
        "adam": lambda: torch.optim.Adam(parameters, lr=1e-3, **how),
        "adamw": lambda: torch.optim.AdamW(parameters, lr=1e-3, **how),
        "amsgrad": lambda: torch.optim.AdamW(parameters, lr=1e-3, amsgrad=True, **how),
        "rmsprop": lambda: torch.optim.RMSprop(parameters, lr=1e-3, **how),
        "adagrad": lambda: torch.optim.Adagrad(parameters, lr=1e-3, **how),
    }
    return kinds[run.optimizer]()


def _infer(job: WorkloadJob) -> object:
    x, _y = job.batch()
    x = job.cast(x)
    with job.autocast():
        return job.model(x)


def _generate(job: WorkloadJob, run: InferRun) -> object:
    """Greedy: the prompt at once, then token by token, with the cache that the run names."""
    import transformers  # noqa: PLC0415 - the model is of this library, so it is there

    config = job.model.config
    x, _y = job.batch()
    del _y
    cache: Any = None
    if run.new_tokens and run.cache_implementation == "static":
        cache = transformers.StaticCache(config=config, max_cache_len=x.shape[1] + run.new_tokens)
    elif run.new_tokens:
        cache = transformers.DynamicCache(config=config)
    for _ in range(max(1, run.new_tokens)):
        with job.autocast():
            out = job.model(input_ids=x, past_key_values=cache, use_cache=cache is not None, logits_to_keep=1)
        x = out.logits[:, -1].argmax(-1, keepdim=True)
    return out, cache
