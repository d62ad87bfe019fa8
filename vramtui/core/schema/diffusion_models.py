"""Whole diffusion pipelines: what reads the prompt, what removes noise, and what makes an image of the result."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from vramtui.core.schema.bounds import Count, Heads, Layers, ParameterCount, Tokens
from vramtui.core.schema.encoder_models import DiffusionTransformerModel, UNetModel
from vramtui.core.schema.stored_tensors import TensorGroup

Name = Annotated[str, Meta(min_length=1, max_length=64)]
Design = Literal["images", "video"]


class PipelineEncoder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a pipeline that reads the prompt.

    Attributes:
        name: of its folder.
        hidden_size: width of its stream.
        num_hidden_layers: its blocks.
        num_attention_heads: heads of each.
        intermediate_size: width of the MLP.
        tokens: of one prompt.
        gated_mlp: a gate beside the up projection.
        position_bias: scores get a bias of their own for each pair of tokens (T5).
        keeps_states: every block's output is kept to the end, as the pipeline asks for one from the middle.
        output_size: rows of an output layer over all tokens, where there is one (a whole language model).
        fp32_in_fp16: tensors that stay in fp32 in a pipeline of fp16 (T5's `wo`).
        tensors: all of them.
    """

    name: Name
    hidden_size: Count
    num_hidden_layers: Layers
    num_attention_heads: Heads
    intermediate_size: Count
    tokens: Tokens = 77
    gated_mlp: bool = False
    position_bias: bool = False
    keeps_states: bool = False
    output_size: Count | None = None
    fp32_in_fp16: tuple[str, ...] = ()
    tensors: Annotated[tuple[TensorGroup, ...], Meta(min_length=1)]


class PipelineVae(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The part of a pipeline that makes pixels of latents.

    Attributes:
        design: `images` is diffusers' AutoencoderKL, `video` the causal one of Wan and Qwen-Image, which decodes a
            frame of latents at a time and keeps the last frames that its convolutions saw.
        block_out_channels: channels of each level of the decoder, from the pixels inwards.
        layers_per_block: residual blocks of each level; one more on the way up.
        latent_channels: channels of the latents.
        out_channels: of what the decoder makes.
        temporal_upsample: by level from the latents outwards, whether frames are doubled there (video).
        residual: shortcuts around whole levels (Wan 2.2's 5B).
        patch_size: pixels along a side that are laid into channels.
        spatial_factor: pixels along a side of one latent.
        attention: one attention in the middle.
        force_upcast: a pipeline in fp16 decodes in fp32.
        fp32: it is kept in fp32 whatever the precision.
        tile_size: pixels along a side of a tile, with tiling.
        tensors: all of them.
    """

    design: Design = "images"
    block_out_channels: Annotated[tuple[Count, ...], Meta(min_length=1, max_length=12)]
    layers_per_block: Layers = 2
    latent_channels: Count = 4
    out_channels: Count = 3
    temporal_upsample: tuple[bool, ...] = ()
    residual: bool = False
    patch_size: Count = 1
    spatial_factor: Count = 8
    attention: bool = True
    force_upcast: bool = False
    fp32: bool = False
    tile_size: Count = 512
    tensors: Annotated[tuple[TensorGroup, ...], Meta(min_length=1)]


class PipelineModel(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="pipeline"
):
    """A diffusion pipeline as its model_index.json lists it: text encoders, one or two denoisers, a VAE.

    Attributes:
        denoiser: what runs at each step.
        encoders: what reads the prompt, in the order in which it does.
        vae: what makes pixels.
        denoisers: 2 where a second one of the same shapes takes over for the late steps (Wan 2.2's 14B).
        guidance_batch: 2 where guidance asks the denoiser twice in one batch; 1 where it asks one after the other, or
            not at all.
        parameters: the exact count of all parts; checked against the shapes when given.
    """

    denoiser: UNetModel | DiffusionTransformerModel
    encoders: tuple[PipelineEncoder, ...] = ()
    vae: PipelineVae
    denoisers: Annotated[int, Meta(ge=1, le=2)] = 1
    guidance_batch: Annotated[int, Meta(ge=1, le=2)] = 1
    parameters: ParameterCount | None = None
