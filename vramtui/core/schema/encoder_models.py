"""Encoders, encoder-decoders, what diffusion runs on, and whole pipelines; named as published configs name them."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from vramtui.core.schema.bounds import (
    Activation,
    Count,
    Heads,
    Layers,
    LayersOrNone,
    Norm,
    ParameterCount,
    Pixels,
    Probability,
    Tokens,
    Words,
    check_parameters,
)
from vramtui.core.schema.stored_tensors import TensorGroup

NotNegative = Annotated[int, Meta(ge=0, le=2**24)]
Levels = Meta(min_length=1, max_length=12)
Name = Annotated[str, Meta(min_length=1, max_length=64)]
Design = Literal["images", "video"]


class EncoderModel(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="encoder"
):
    """An encoder: text (BERT, RoBERTa) or images in patches (ViT, CLIP's towers).

    Attributes:
        hidden_size: width of the residual stream.
        num_hidden_layers: number of blocks.
        num_attention_heads: heads, each hidden_size / heads wide.
        intermediate_size: width of the MLP; 4 x hidden_size when absent.
        vocab_size: rows of the word embedding; absent for images.
        type_vocab_size: rows of the token type embedding (BERT).
        max_position_embeddings: rows of the position embedding, for text.
        image_size: height and width of an image; its presence makes the input images.
        patch_size: height and width of a patch.
        num_channels: channels of an image.
        class_token: one more position that stands for the whole image.
        norm_first: norms before attention and MLP (ViT) instead of after the sum (BERT).
        norm_before: a norm after the embeddings (BERT, CLIP).
        norm_after: a norm after the last block (ViT, CLIP).
        patch_bias: a bias on the patch embedding (ViT; not CLIP).
        hidden_act: the MLP's activation function.
        causal: each token sees only those before it (CLIP's text tower).
        pooler: a linear layer of hidden_size over the first token (BERT).
        projection_dim: a linear layer without bias to this width over the pooled output (CLIP).
        head: `mlm` predicts words as BERT does, `classes` has num_labels outputs, `none` ends with the last block.
        num_labels: outputs of a classifier.
        hidden_dropout: dropout after embeddings, attention and MLP.
        attention_dropout: dropout on the attention's weights.
        parameters: the exact count; checked against the shapes when given.
    """

    hidden_size: Count
    num_hidden_layers: Layers
    num_attention_heads: Heads
    intermediate_size: Count | None = None
    vocab_size: Words | None = None
    type_vocab_size: NotNegative = 0
    max_position_embeddings: Tokens | None = None
    image_size: Pixels | None = None
    patch_size: Pixels = 16
    num_channels: Count = 3
    class_token: bool = True
    norm_first: bool = False
    norm_before: bool = True
    norm_after: bool = False
    patch_bias: bool = True
    hidden_act: Activation = "gelu"
    causal: bool = False
    pooler: bool = False
    projection_dim: Count | None = None
    head: Literal["mlm", "classes", "none"] = "none"
    num_labels: Count = 2
    hidden_dropout: Probability = 0.0
    attention_dropout: Probability = 0.0
    parameters: ParameterCount | None = None

    def __post_init__(self) -> None:
        width = self.intermediate_size or 4 * self.hidden_size
        sizes = {"num_hidden_layers": self.num_hidden_layers, "hidden_size": self.hidden_size}
        check_parameters("model", sizes | {"intermediate_size": width})


class EncoderDecoderModel(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="encoder-decoder"
):
    """An encoder and a decoder that looks at it (T5, BART, Whisper).

    Attributes:
        d_model: width of the residual stream.
        encoder_layers: blocks of the encoder.
        decoder_layers: blocks of the decoder.
        num_attention_heads: heads in each attention.
        d_ff: width of the MLPs.
        vocab_size: rows of the word embedding, which encoder and decoder share.
        d_kv: width of one head; d_model / heads when absent (T5 differs).
        gated_mlp: gate and up projections (T5 v1.1, Flan-T5).
        hidden_act: the MLP's activation function.
        norm: the kind of norm.
        bias: biases on the linear layers.
        key_bias: the keys' projection has a bias too, where others have; Whisper's has none.
        relative_attention_num_buckets: rows of T5's relative positions, in the first block of each side.
        max_source_positions: learned or stored positions of the encoder.
        max_target_positions: learned or stored positions of the decoder.
        source_positions_trained: whether the encoder's positions get gradients (BART) or are fixed (Whisper).
        position_offset: rows added to each table of positions (2 in BART).
        norm_embeddings: a norm after the embeddings of each side (BART).
        final_norm: a norm after the last block of each side (T5, Whisper).
        num_mel_bins: channels of a spectrogram, read by two convolutions (Whisper); absent for text.
        tie_word_embeddings: the output layer is the embedding.
        final_bias: a fixed bias on the logits (BART), a buffer.
        dropout: dropout after embeddings, attention and MLP.
        parameters: the exact count; checked against the shapes when given.
    """

    d_model: Count
    encoder_layers: Layers
    decoder_layers: Layers
    num_attention_heads: Heads
    d_ff: Count
    vocab_size: Words
    d_kv: Count | None = None
    gated_mlp: bool = False
    hidden_act: Activation = "relu"
    norm: Norm = "rmsnorm"
    bias: bool = False
    key_bias: bool = True
    relative_attention_num_buckets: NotNegative = 0
    max_source_positions: Count | None = None
    max_target_positions: Count | None = None
    source_positions_trained: bool = True
    position_offset: NotNegative = 0
    norm_embeddings: bool = False
    final_norm: bool = True
    num_mel_bins: Count | None = None
    tie_word_embeddings: bool = True
    final_bias: bool = False
    dropout: Probability = 0.0
    parameters: ParameterCount | None = None

    def __post_init__(self) -> None:
        check_parameters("model", {"encoder_layers": self.encoder_layers, "d_model": self.d_model, "d_ff": self.d_ff})
        check_parameters("model", {"decoder_layers": self.decoder_layers, "d_model": self.d_model, "d_ff": self.d_ff})


class UNetModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="unet"):
    """A conditioned UNet as in diffusers' UNet2DConditionModel (Stable Diffusion 1.x, 2.x, SDXL).

    Attributes:
        block_out_channels: channels of each level.
        layers_per_block: residual blocks of each level on the way down; one more on the way up.
        transformer_layers_per_block: transformer blocks after each residual block, by level; 0 for none.
        attention_head_dim: heads of each level (diffusers' misnomer), or a single number for all.
        cross_attention_dim: width of the text's embedding.
        sample_size: height and width of the latents.
        in_channels: channels of the latents.
        out_channels: channels of the answer.
        text_length: tokens of the text.
        mid_transformer_layers: transformer blocks in the middle; as in the last level with any when absent.
        use_linear_projection: linear layers instead of 1x1 convolutions around the transformer blocks.
        addition_embed_dim: width of what SDXL adds to the time embedding; absent elsewhere.
        parameters: the exact count; checked against the shapes when given.
    """

    block_out_channels: Annotated[tuple[Count, ...], Levels]
    layers_per_block: Layers = 2
    transformer_layers_per_block: Annotated[tuple[LayersOrNone, ...], Levels]
    attention_head_dim: Annotated[tuple[Heads, ...], Levels]
    cross_attention_dim: Count
    sample_size: Count = 64
    in_channels: Count = 4
    out_channels: Count = 4
    text_length: Tokens = 77
    mid_transformer_layers: LayersOrNone | None = None
    use_linear_projection: bool = False
    addition_embed_dim: Count | None = None
    parameters: ParameterCount | None = None


class DiffusionTransformerModel(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="dit"
):
    """A diffusion transformer: double-stream blocks over image and text, then single-stream ones (FLUX).

    Attributes:
        design: whose blocks they are. `sd3` and `qwen-image` have only double-stream blocks, `wan` reads the text by
            cross-attention.
        num_layers: double-stream blocks, each with its own weights for image and text; of `wan` all blocks.
        num_single_layers: single-stream blocks over both together.
        num_attention_heads: heads, each `attention_head_dim` wide.
        attention_head_dim: width of one head.
        in_channels: channels of a packed latent; of one that is packed by the model itself (`sd3`, `wan`) before.
        out_channels: channels of the answer; as many as come in when absent.
        joint_attention_dim: width of the text's embedding.
        pooled_projection_dim: width of the pooled text embedding (`flux`, `sd3`).
        guidance_embeds: a second embedding of the guidance scale.
        qk_norm: norms on queries and keys.
        dual_attention_layers: of the first blocks, how many attend to the image a second time (SD 3.5 medium).
        pos_embed_max_size: rows and columns of the table of positions (`sd3`).
        ffn_dim: width of the MLP (`wan`); 4 x the blocks' width in the others.
        sample_size: height and width of the image in pixels.
        height: of the image in pixels, where it is not square.
        width: of the image in pixels, where it is not square.
        frames: of a video; 1 for an image. One frame of latents stands for four, and one for the first.
        pixels_per_token: pixels along a side that one packed latent covers.
        text_length: tokens of the text.
        parameters: the exact count; checked against the shapes when given.
    """

    design: Literal["flux", "sd3", "qwen-image", "wan"] = "flux"
    num_layers: LayersOrNone
    num_single_layers: LayersOrNone = 0
    num_attention_heads: Heads
    attention_head_dim: Count = 128
    in_channels: Count = 64
    out_channels: Count | None = None
    joint_attention_dim: Count = 4096
    pooled_projection_dim: Count = 768
    guidance_embeds: bool = False
    qk_norm: bool = True
    dual_attention_layers: LayersOrNone = 0
    pos_embed_max_size: Count = 192
    ffn_dim: Count | None = None
    sample_size: Pixels = 1024
    height: Pixels | None = None
    width: Pixels | None = None
    frames: Count = 1
    pixels_per_token: Count = 16
    text_length: Tokens = 512
    parameters: ParameterCount | None = None

    @property
    def size(self) -> tuple[int, int]:
        return self.height or self.sample_size, self.width or self.sample_size

    @property
    def latent_frames(self) -> int:
        """Frames of latents: one for the first frame, then one for each four."""
        return 1 + (self.frames - 1) // 4

    @property
    def image_tokens(self) -> int:
        height, width = self.size
        return self.latent_frames * (height // self.pixels_per_token) * (width // self.pixels_per_token)

    @property
    def packed(self) -> tuple[int, int]:
        """Numbers that come in and go out for each packed latent."""
        patch = 4 if self.design in {"sd3", "wan"} else 1
        return patch * self.in_channels, patch * (self.out_channels or self.in_channels)


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
