"""Further jobs that stated errors are measured on: nets as lists of layers, diffusion transformers.

Each is a public model by its name or config; of transformers a few blocks are kept.
"""

from collections.abc import Iterator
from typing import Any

Job = dict[str, Any]
# torchvision's nets, one of each family.
LAYER_LISTS = (
    "alexnet", "vgg11_bn", "densenet121", "squeezenet1_1", "mnasnet1_0", "mobilenet_v2", "mobilenet_v3_large",
    "efficientnet_b0", "convnext_tiny", "regnet_y_400mf", "swin_t", "resnext50_32x4d",
)  # fmt: skip
LISTED: tuple[dict[str, Any], ...] = (
    {"precision": "fp32", "optimizer": "momentum", "batch_size": 8},
    {"precision": "bf16-mixed", "optimizer": "adamw", "batch_size": 16},
)
_SD3 = {"_class_name": "SD3Transformer2DModel", "num_layers": 6}
DIFFUSION_TRANSFORMERS: dict[str, dict[str, Any]] = {
    "flux.1-dev": {
        "_class_name": "FluxTransformer2DModel",
        "num_layers": 2,
        "num_single_layers": 4,
        "guidance_embeds": True,
    },
    "flux.1-schnell": {"_class_name": "FluxTransformer2DModel", "num_layers": 3, "num_single_layers": 2},
    "sd3-medium": _SD3
    | {"num_attention_heads": 24, "caption_projection_dim": 1536, "pos_embed_max_size": 192, "sample_size": 128},
    "sd3.5-medium": _SD3
    | {
        "num_attention_heads": 24,
        "caption_projection_dim": 1536,
        "pos_embed_max_size": 384,
        "sample_size": 128,
        "qk_norm": "rms_norm",
        "dual_attention_layers": [0, 1, 2],
    },
    "sd3.5-large": _SD3
    | {
        "num_attention_heads": 38,
        "caption_projection_dim": 2432,
        "pos_embed_max_size": 192,
        "sample_size": 128,
        "qk_norm": "rms_norm",
    },
}
DENOISED: tuple[dict[str, Any], ...] = (
    {"kind": "train", "precision": "bf16", "optimizer": "adamw", "batch_size": 1},
    {"kind": "train", "precision": "bf16-mixed", "optimizer": "adamw", "batch_size": 1, "checkpointing": "full"},
    {"kind": "infer", "precision": "bf16", "batch_size": 2},
)


def net_jobs() -> Iterator[Job]:
    """Each net in two ways to train, each transformer in two and asked once."""
    for family in LAYER_LISTS:
        for run in LISTED:
            yield {"kind": "layer list", "family": family, "device": "H200", "run": {"kind": "train"} | run}
    for family, config in DIFFUSION_TRANSFORMERS.items():
        for run in DENOISED:
            yield {"kind": "diffusion transformer", "family": family, "config": config, "device": "H200", "run": run}


def denoiser_batch(config: Any, size: int, dtype: Any, torch: Any) -> dict[str, Any]:  # noqa: ANN401 - of two libraries
    """What one step of a diffusion transformer sees: an image of 1024 x 1024 pixels, its words, its step."""

    def given(*shape: int) -> Any:  # noqa: ANN401 - as above
        return torch.randn(size, *shape, device="cuda", dtype=dtype)

    steps = torch.ones(size, device="cuda", dtype=dtype)
    if hasattr(config, "pos_embed_max_size"):
        return {
            "hidden_states": given(16, 128, 128),
            "encoder_hidden_states": given(333, 4096),
            "pooled_projections": given(2048),
            "timestep": steps,
        }
    batch = {
        "hidden_states": given(4096, 64),
        "encoder_hidden_states": given(512, 4096),
        "pooled_projections": given(768),
        "timestep": steps,
        "img_ids": torch.zeros(4096, 3, device="cuda", dtype=dtype),
        "txt_ids": torch.zeros(512, 3, device="cuda", dtype=dtype),
    }
    return batch | ({"guidance": torch.ones(size, device="cuda", dtype=dtype)} if config.guidance_embeds else {})
