"""Diffusion models: a pipeline's model_index.json with the configs of its parts, a UNet's or a diffusion transformer's.

A VAE has every tensor by its config (diffusers 0.42), text encoders by generated shapes.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.models.families.any_config import read_any
from vramtui.models.families.keys import Fields, Keys, Table, layer_count, sizes_of
from vramtui.models.readers.bounded import DamagedError, path_text
from vramtui.models.shapes.known import filled_in
from vramtui.models.shapes.nets import listed_shapes
from vramtui.models.tensor_list import TensorList

INDEX = "model_index.json"
# The part of a pipeline that is on the card at each step, by its folder.
PARTS = ("unet", "transformer")
VIDEO = {"height": 480, "width": 832, "frames": 81}
DOWN, UP, PLAIN, PLAIN_UP = "CrossAttnDownBlock2D", "CrossAttnUpBlock2D", "DownBlock2D", "UpBlock2D"


def unet(config: Fields) -> Table:
    """UNet2DConditionModel: levels with attention or without, as on the way down so on the way up."""
    downs, ups = config.texts("down_block_types"), config.texts("up_block_types")
    channels = _numbers(config, "block_out_channels")
    if len(downs) != len(channels) or not set(downs) <= {DOWN, PLAIN}:
        raise DamagedError(f"has down_block_types other than {DOWN} and {PLAIN}, which is not modelled")
    if [block == UP for block in reversed(ups)] != [block == DOWN for block in downs] or not set(ups) <= {UP, PLAIN_UP}:
        raise DamagedError("has up_block_types that do not mirror its down_block_types, which is not modelled")
    if config.text("mid_block_type", "UNetMidBlock2DCrossAttn") != "UNetMidBlock2DCrossAttn":
        raise DamagedError("has another block in its middle than UNetMidBlock2DCrossAttn, which is not modelled")
    layers = _numbers(config, "transformer_layers_per_block", (1,), each=len(channels))
    table = {
        "kind": "unet",
        "block_out_channels": channels,
        "layers_per_block": config.whole("layers_per_block", 2),
        "transformer_layers_per_block": [
            count if block == DOWN else 0 for count, block in zip(layers, downs, strict=True)
        ],
        "attention_head_dim": _numbers(
            config, "num_attention_heads" if config.has("num_attention_heads") else "attention_head_dim", (8,)
        ),
        "cross_attention_dim": config.whole("cross_attention_dim", 1280),
        "sample_size": config.whole("sample_size", 64),
        "in_channels": config.whole("in_channels", 4),
        "out_channels": config.whole("out_channels", 4),
        "mid_transformer_layers": layers[-1],
        "use_linear_projection": config.flag("use_linear_projection", default=False),
    }
    if config.has("addition_embed_type"):
        table["addition_embed_dim"] = config.whole("projection_class_embeddings_input_dim")
    if config.has("class_embed_type") or config.has("encoder_hid_dim"):
        raise DamagedError("embeds classes or projects its text, which is not modelled")
    return table


def _sizes(config: Fields, **defaults: int | None) -> Table:
    """Whole numbers that a transformer's config calls as the model's table does."""
    return {"kind": "dit"} | {key: config.whole(key, default) for key, default in defaults.items()}


def flux(config: Fields) -> Table:
    sizes = _sizes(
        config, num_layers=19, num_single_layers=38, num_attention_heads=24, attention_head_dim=128, in_channels=64,
        joint_attention_dim=4096, pooled_projection_dim=768,
    )  # fmt: skip
    return sizes | {"guidance_embeds": config.flag("guidance_embeds", default=False)}


def sd3(config: Fields) -> Table:
    """SD3Transformer2DModel (SD 3, 3.5)."""
    heads, each = config.whole("num_attention_heads", 18), config.whole("attention_head_dim", 64)
    if config.whole("caption_projection_dim", heads * each) != heads * each or config.whole("patch_size", 2) != 2:
        raise DamagedError(
            "has a caption_projection_dim that is not its width, or patches that are not 2 x 2: not modelled"
        )
    dual = config.values.get("dual_attention_layers") or []
    if not isinstance(dual, list) or dual != list(range(len(dual))):
        raise DamagedError(f"has dual_attention_layers = {printable(repr(dual))[:40]}; the first ones are modelled")
    sizes = _sizes(
        config, num_layers=18, num_attention_heads=18, attention_head_dim=64, in_channels=16, out_channels=None,
        joint_attention_dim=4096, pooled_projection_dim=2048, pos_embed_max_size=96, sample_size=128,
    )  # fmt: skip
    return sizes | {
        "design": "sd3", "qk_norm": config.has("qk_norm"), "dual_attention_layers": len(dual),
        "sample_size": 8 * sizes["sample_size"], "text_length": 333,
    }  # fmt: skip


def qwen_image(config: Fields) -> Table:
    if config.has("use_additional_t_cond"):
        raise DamagedError("embeds a second condition (use_additional_t_cond), which is not modelled")
    sizes = _sizes(
        config, num_layers=60, num_attention_heads=24, attention_head_dim=128, in_channels=64, joint_attention_dim=3584
    )  # fmt: skip
    outer = config.whole("patch_size", 2) ** 2 * config.whole("out_channels", 16)
    return sizes | {"design": "qwen-image", "out_channels": outer}


def wan(config: Fields) -> Table:
    """WanTransformer3DModel (Wan 2.1, 2.2)."""
    if config.has("image_dim") or config.has("added_kv_proj_dim"):
        raise DamagedError("reads an image by projections of its own (image_dim), which is not modelled")
    if _numbers(config, "patch_size", (1, 2, 2)) != [1, 2, 2]:
        raise DamagedError("has other patches than 1 x 2 x 2, which is not modelled")
    if not config.flag("cross_attn_norm", default=True):
        raise DamagedError("has no norm before its cross-attention, which is not modelled")
    sizes = _sizes(
        config, num_layers=40, num_attention_heads=40, attention_head_dim=128, in_channels=16, out_channels=None,
        ffn_dim=13824,
    )  # fmt: skip
    return sizes | VIDEO | {"design": "wan", "joint_attention_dim": config.whole("text_dim", 4096)}


def pixart(config: Fields) -> Table:
    """PixArtTransformer2DModel (PixArt-alpha and -sigma), whose first files call it Transformer2DModel."""
    sizes = _sizes(
        config, num_layers=28, num_attention_heads=16, attention_head_dim=72, in_channels=4, out_channels=8,
        sample_size=128, patch_size=2, cross_attention_dim=1152,
    )  # fmt: skip
    side, width = sizes["sample_size"], sizes["num_attention_heads"] * sizes["attention_head_dim"]
    wrong = sizes.pop("patch_size") != 2 or sizes.pop("cross_attention_dim") != width
    if wrong or config.text("norm_type", "ada_norm_single") != "ada_norm_single":
        raise DamagedError("has other patches than 2 x 2, another cross_attention_dim or norm_type: not modelled")
    return sizes | {
        "design": "pixart", "qk_norm": False, "sample_size": 8 * side, "text_length": 120,
        "joint_attention_dim": config.whole("caption_channels", 4096),
        "guidance_embeds": config.flag("use_additional_conditions", default=side == 128),
    }  # fmt: skip


CLASSES: dict[str, Callable[[Fields], Table]] = {
    "UNet2DConditionModel": unet,
    "FluxTransformer2DModel": flux,
    "SD3Transformer2DModel": sd3,
    "QwenImageTransformer2DModel": qwen_image,
    "WanTransformer3DModel": wan,
    "PixArtTransformer2DModel": pixart,
    "Transformer2DModel": pixart,
}


def read_class(config: Fields) -> tuple[str, Table]:
    """The class of a part of a pipeline, and its `[model]` table. Raises DamagedError if the class is not known, or a
    key of it is wrong.
    """
    name = config.text("_class_name", "")
    if name not in CLASSES:
        known = ", ".join(CLASSES)
        raise DamagedError(f"is of the class {printable(name[:60])!r}; of diffusers these are read: {known}")
    return name, {key: value for key, value in CLASSES[name](config).items() if value is not None}


def _numbers(config: Fields, key: str, default: tuple[int, ...] = (), *, each: int = 1) -> list[int]:
    value = config.values.get(key)
    given: list[object] = value if isinstance(value, list) else [value] * each
    numbers = [number for number in given if isinstance(number, int) and not isinstance(number, bool)]
    if value is None and default:
        return list(default) * each
    if not numbers or len(numbers) != len(given):
        raise DamagedError(f"has {key} = {printable(repr(value))[:40]}; whole numbers are needed")
    if each > 1 and len(numbers) != each:
        raise DamagedError(f"has {len(numbers)} numbers in {key} and {each} levels")
    return numbers


# How many levels a VAE has at most; published ones have four or five.
MOST_LEVELS = 12
MOST_BLOCKS = 64


def read_vae(config: Fields) -> Table:
    """A `[model.vae]` table; raises DamagedError if its class is not known, or a key of it is wrong."""
    name = config.text("_class_name", "")
    if name not in VAES:
        raise DamagedError(f"is of the class {printable(name[:60])!r}; of VAEs these are read: {', '.join(VAES)}")
    return VAES[name](config)


def of_images(config: Fields) -> Table:
    """AutoencoderKL: residual blocks of 2D convolutions, one attention in the middle."""
    channels = whole_numbers(config, "block_out_channels", (64,))
    layers, latent = _blocks(config, "layers_per_block", 1), config.whole("latent_channels", 4)
    for side, kind in (("down", "Encoder"), ("up", "Decoder")):
        known = f"{side.title()}{kind}Block2D"
        if not set(config.texts(f"{side}_block_types")) <= {known}:
            raise DamagedError(f"has {side}_block_types other than {known}, which is not modelled")
    attention = config.flag("mid_block_add_attention", default=True)
    channels_in, channels_out = config.whole("in_channels", 3), config.whole("out_channels", 3)
    image = _Vae(channels, layers, video=False, attention=attention)
    image.encoder(channels_in, latent)
    for numbers, key in ((2 * latent, "use_quant_conv"), (latent, "use_post_quant_conv")):
        if config.flag(key, default=True):
            image.conv(key.removeprefix("use_"), numbers, numbers, kernel=1)
    image.decoder(channels[::-1], latent, channels_out)
    return {
        "design": "images", "block_out_channels": channels, "layers_per_block": layers, "latent_channels": latent,
        "out_channels": channels_out, "attention": attention,
        "force_upcast": config.flag("force_upcast", default=True), "spatial_factor": 2 ** (len(channels) - 1),
        "tile_size": config.whole("sample_size", 32), "tensors": _tables(image.tensors),
    }  # fmt: skip


def of_video(config: Fields) -> Table:
    """AutoencoderKLWan and AutoencoderKLQwenImage: residual blocks of causal 3D convolutions."""
    times = whole_numbers(config, "dim_mult", (1, 2, 4, 4))
    layers, latent = _blocks(config, "num_res_blocks", 2), config.whole("z_dim", 16)
    down = config.values.get("temperal_downsample", [False, True, True])
    if not isinstance(down, list) or len(down) != len(times) - 1 or not all(isinstance(one, bool) for one in down):
        raise DamagedError(
            f"has temperal_downsample = {printable(repr(down))[:40]}; true or false for each level is needed"
        )
    if config.has("attn_scales"):
        raise DamagedError("has attn_scales, attentions between its levels, which is not modelled")
    base = config.whole("base_dim", 96)
    outer = config.whole("decoder_base_dim", base)
    residual = config.flag("is_residual", default=False)
    video = _Vae([base * one for one in times], layers, video=True)
    video.encoder(config.whole("in_channels", 3), latent, down)
    video.conv("quant_conv", 2 * latent, 2 * latent, kernel=1)
    video.conv("post_quant_conv", latent, latent, kernel=1)
    channels, channels_out = [outer * one for one in times], config.whole("out_channels", 3)
    video.decoder(channels[::-1], latent, channels_out, down[::-1], parts=1 if residual else 2)
    return {
        "design": "video", "block_out_channels": channels, "layers_per_block": layers,
        "latent_channels": latent, "out_channels": channels_out, "temporal_upsample": down[::-1],
        "residual": residual, "patch_size": config.whole("patch_size", 1),
        "spatial_factor": config.whole("scale_factor_spatial", 8), "tile_size": 256, "tensors": _tables(video.tensors),
    }  # fmt: skip


VAES: dict[str, Callable[[Fields], Table]] = {
    "AutoencoderKL": of_images,
    "AutoencoderKLQwenImage": of_video,
    "AutoencoderKLWan": of_video,
}


class _Vae:
    """Writes the tensors of an encoder and a decoder: 2D convolutions of images, causal 3D ones of `video`."""

    def __init__(self, channels: list[int], layers: int, *, video: bool, attention: bool = True) -> None:
        self.tensors = TensorList()
        self.channels, self.layers, self.video, self.attention = channels, layers, video, attention

    def conv(self, name: str, inner: int, outer: int, kernel: int = 3) -> None:
        self.tensors.conv(name, outer, inner, *[kernel] * (3 if self.video else 2), bias=True)

    def flat(self, name: str, inner: int, outer: int, kernel: int = 3) -> None:
        self.tensors.conv(name, outer, inner, kernel, kernel, bias=True)

    def time(self, inner: int, outer: int) -> None:
        self.tensors.conv("time_conv", outer, inner, 3, 1, 1, bias=True)

    def norm(self, width: int) -> None:
        self.tensors.norm("norm", width, bias=not self.video)

    def resnet(self, inner: int, outer: int) -> None:
        for given in (inner, outer):
            self.norm(given)
            self.conv("resnet", given, outer)
        if inner != outer:
            self.conv("shortcut", inner, outer, kernel=1)

    def middle(self, width: int) -> None:
        self.resnet(width, width)
        if self.attention:
            self.norm(width)
            if self.video:
                self.flat("to_qkv", width, 3 * width, kernel=1)
                self.flat("proj", width, width, kernel=1)
            else:
                self.tensors.linear("qkvo", width, width, bias=True, count=4)
        self.resnet(width, width)

    def encoder(self, given: int, latent: int, down: Sequence[bool] = ()) -> None:
        width = self.channels[0]
        self.conv("conv_in", given, width)
        for level, outer in enumerate(self.channels):
            for _ in range(self.layers):
                self.resnet(width, outer)
                width = outer
            if level < len(self.channels) - 1:
                self.flat("downsampler", outer, outer)
                if any(down[level : level + 1]):
                    self.time(outer, outer)
        self.middle(width)
        self.norm(width)
        self.conv("conv_out", width, 2 * latent)

    def decoder(self, channels: list[int], latent: int, given: int, up: Sequence[bool] = (), parts: int = 1) -> None:
        """`channels` from the latents outwards; an upsampler leaves one of so many `parts` of its channels."""
        width = channels[0]
        self.conv("conv_in", latent, width)
        self.middle(width)
        for level, outer in enumerate(channels):
            for _ in range(self.layers + 1):
                self.resnet(width, outer)
                width = outer
            if level < len(channels) - 1:
                width = outer // parts
                self.flat("upsampler", outer, width)
                if any(up[level : level + 1]):
                    self.time(outer, 2 * outer)
        self.norm(width)
        self.conv("conv_out", width, given)


def whole_numbers(config: Fields, key: str, default: tuple[int, ...]) -> list[int]:
    """A list of as many whole numbers as there are levels; raises DamagedError if it is something else."""
    numbers = _numbers(config, key, default)
    if len(numbers) > MOST_LEVELS or not all(0 < one < 2**24 for one in numbers):
        raise DamagedError(f"has {key} = {printable(repr(numbers))[:40]}; a list of whole numbers is needed")
    return numbers


def _blocks(config: Fields, key: str, default: int) -> int:
    count: int = config.whole(key, default)
    if not 0 < count <= MOST_BLOCKS:
        raise DamagedError(f"has {key} = {count}; 1 to {MOST_BLOCKS} are read")
    return count


def _tables(tensors: TensorList) -> list[Table]:
    return [msgspec.to_builtins(group) for group in tensors.groups()]


# Types whose tensors but `wo` follow the pipeline's precision (transformers, modeling_t5.py: _keep_in_fp32_modules).
IN_FP32 = ("wo",)
# T5 and its kin, by type.
T5 = {"t5": "T5EncoderModel", "mt5": "MT5EncoderModel", "umt5": "UMT5EncoderModel"}


def read_encoder(config: Fields, named: str) -> Table:
    """One of `[[model.encoders]]` without its name and its tokens."""
    kind = config.text("model_type", "")
    if kind in {"clip", "clip_text_model"}:
        part = config.table("text_config") if config.has("text_config") else config
        projected = named.endswith("WithProjection")
        return _encoder(part, "clip_text_model", f"CLIPTextModel{'WithProjection' if projected else ''}")
    if kind in T5:
        encoder = _encoder(config, kind, T5[kind])
        gated = any(group["name"] == "wi_1" for group in encoder["tensors"])
        return encoder | {"gated_mlp": gated, "position_bias": True, "fp32_in_fp16": list(IN_FP32)}
    return _decoder(config)


def _encoder(config: Fields, kind: str, architecture: str) -> Table:
    values = filled_in(dict(config.values), kind)
    keys = Keys(values)
    sizes = sizes_of(keys)
    tensors, _exact = listed_shapes(values | {"architectures": [architecture]}, "base")
    return {
        "hidden_size": sizes.hidden,
        "num_hidden_layers": layer_count(keys),
        "num_attention_heads": sizes.heads,
        "intermediate_size": sizes.ffn,
        "tensors": [msgspec.to_builtins(group) for group in tensors.groups()],
    }


def _decoder(config: Fields) -> Table:
    """A whole language model with whatever belongs to it, such as its tower for images."""
    model = read_any(dict(config.values))
    if model.partial or model.basis != "family":
        raise DamagedError("is of a text encoder that is not known to the last tensor")
    table = model.table
    return {
        "hidden_size": table["hidden_size"],
        "num_hidden_layers": table["num_hidden_layers"],
        "num_attention_heads": table["num_attention_heads"],
        "intermediate_size": table.get("intermediate_size") or 4 * table["hidden_size"],
        "gated_mlp": True,
        "keeps_states": True,
        "output_size": table["vocab_size"],
        "tensors": [msgspec.to_builtins(group) for group in model.tensors],
    }


ENCODERS = ("text_encoder", "text_encoder_2", "text_encoder_3", "text_encoder_4")
Decode = Callable[[Path], dict[str, object]]


class PipelineHabits(msgspec.Struct, frozen=True, kw_only=True):
    """Values that a pipeline's own code adds to its parts (diffusers 0.42)."""

    tokens: tuple[int, ...] = (77,)  # of a prompt for each encoder; the last number for those after it
    batched: bool = False  # guidance asks for an image twice in one batch
    states: bool = False  # its encoders' states are asked for, of every block
    text_length: int | None = None  # tokens that the denoiser reads; those of the last encoder when absent


# By the beginning of the pipeline's class.
HABITS: dict[str, PipelineHabits] = {
    "StableDiffusion3": PipelineHabits(tokens=(77, 77, 256), batched=True, states=True, text_length=333),
    "StableDiffusionXL": PipelineHabits(batched=True, states=True),
    "StableDiffusion": PipelineHabits(batched=True),
    "Flux": PipelineHabits(tokens=(77, 512)),
    "Wan": PipelineHabits(tokens=(512,)),
    "QwenImage": PipelineHabits(tokens=(512,)),
    "PixArtAlpha": PipelineHabits(tokens=(120,), batched=True),
    "PixArtSigma": PipelineHabits(tokens=(300,), batched=True),
}


def read_pipeline(index: Path, values: dict[str, object], decode: Decode) -> tuple[str, Table, str]:
    """The class of a pipeline, its `[model]` table, and why it is only its denoiser's where it is; empty elsewhere.
    Raises UserError if the denoiser's config is not there or cannot be read, and DamagedError if it names no denoiser,
    or one that is not known.
    """
    named = Fields(values)
    denoiser = next((part for part in PARTS if _class_of(values, part)), None)
    if denoiser is None:
        raise DamagedError(f"names neither a unet nor a transformer: {printable(str(values.get('_class_name'))[:60])}")
    name, table = read_class(Fields(decode(index.parent / denoiser / "config.json")))
    pipeline = named.text("_class_name", name)
    usual = next((one for start, one in HABITS.items() if pipeline.startswith(start)), PipelineHabits())
    if not _class_of(values, "vae"):
        return name, table, f"its {denoiser} only, since its index names no vae"
    try:
        vae = read_vae(Fields(decode(index.parent / "vae" / "config.json")))
        encoders: list[Table] = []
        for part in filter(lambda part: _class_of(values, part), ENCODERS):
            path = index.parent / part / "config.json"
            try:
                encoder = read_encoder(Fields(decode(path)), _class_of(values, part))
            except DamagedError as error:
                raise UserError(f"{path_text(path)} {error}") from None
            tokens = usual.tokens[min(len(encoders), len(usual.tokens) - 1)]
            states = encoder.get("keeps_states", False) or (usual.states and not encoder.get("position_bias", False))
            encoders.append({"name": part, "tokens": tokens, **encoder, "keeps_states": states})
    except (DamagedError, UserError) as error:
        index_error = "" if isinstance(error, UserError) else "its index "
        return name, table, f"its {denoiser} only, since {index_error}{error}"
    table |= {"text_length": usual.text_length or encoders[-1]["tokens"]} if encoders else {}
    if table.get("design") == "wan":
        table["pixels_per_token"] = 2 * vae["spatial_factor"]
    whole: Table = {"kind": "pipeline", "denoiser": table, "encoders": encoders, "vae": vae}
    if _class_of(values, f"{denoiser}_2"):
        whole["denoisers"] = 2
    if usual.batched:
        whole["guidance_batch"] = 2
    return pipeline, whole, ""


def _class_of(values: dict[str, object], part: str) -> str:
    """The class that an index gives for a part: the second of two names; empty if it has none."""
    value = values.get(part)
    return value[1] if isinstance(value, list) and len(value) == 2 and isinstance(value[1], str) else ""
