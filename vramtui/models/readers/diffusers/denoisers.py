"""Diffusion models: the config.json of a UNet or a diffusion transformer, and the model_index.json that names it."""

from collections.abc import Callable

from vramtui.core.base.text import printable
from vramtui.models.families.keys import Fields, Table
from vramtui.models.readers.bounded import DamagedError

INDEX = "model_index.json"
# The part of a pipeline that is on the card at each step, by its folder.
PARTS = ("unet", "transformer")
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


def flux(config: Fields) -> Table:
    return {
        "kind": "dit",
        "num_layers": config.whole("num_layers", 19),
        "num_single_layers": config.whole("num_single_layers", 38),
        "num_attention_heads": config.whole("num_attention_heads", 24),
        "attention_head_dim": config.whole("attention_head_dim", 128),
        "in_channels": config.whole("in_channels", 64),
        "joint_attention_dim": config.whole("joint_attention_dim", 4096),
        "pooled_projection_dim": config.whole("pooled_projection_dim", 768),
        "guidance_embeds": config.flag("guidance_embeds", default=False),
    }


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
    return {
        "kind": "dit", "design": "sd3", "num_layers": config.whole("num_layers", 18), "num_attention_heads": heads,
        "attention_head_dim": each, "in_channels": config.whole("in_channels", 16),
        "out_channels": config.whole("out_channels", None),
        "joint_attention_dim": config.whole("joint_attention_dim", 4096),
        "pooled_projection_dim": config.whole("pooled_projection_dim", 2048), "qk_norm": config.has("qk_norm"),
        "dual_attention_layers": len(dual), "pos_embed_max_size": config.whole("pos_embed_max_size", 96),
        "sample_size": 8 * config.whole("sample_size", 128), "text_length": 333,
    }  # fmt: skip


def qwen_image(config: Fields) -> Table:
    if config.has("use_additional_t_cond"):
        raise DamagedError("embeds a second condition (use_additional_t_cond), which is not modelled")
    return {
        "kind": "dit",
        "design": "qwen-image",
        "num_layers": config.whole("num_layers", 60),
        "num_attention_heads": config.whole("num_attention_heads", 24),
        "attention_head_dim": config.whole("attention_head_dim", 128),
        "in_channels": config.whole("in_channels", 64),
        "out_channels": config.whole("patch_size", 2) ** 2 * config.whole("out_channels", 16),
        "joint_attention_dim": config.whole("joint_attention_dim", 3584),
    }


def wan(config: Fields) -> Table:
    """WanTransformer3DModel (Wan 2.1, 2.2)."""
    if config.has("image_dim") or config.has("added_kv_proj_dim"):
        raise DamagedError("reads an image by projections of its own (image_dim), which is not modelled")
    if _numbers(config, "patch_size", (1, 2, 2)) != [1, 2, 2]:
        raise DamagedError("has other patches than 1 x 2 x 2, which is not modelled")
    if not config.flag("cross_attn_norm", default=True):
        raise DamagedError("has no norm before its cross-attention, which is not modelled")
    return {
        "kind": "dit", "design": "wan", "num_layers": config.whole("num_layers", 40),
        "num_attention_heads": config.whole("num_attention_heads", 40),
        "attention_head_dim": config.whole("attention_head_dim", 128), "in_channels": config.whole("in_channels", 16),
        "out_channels": config.whole("out_channels", None), "joint_attention_dim": config.whole("text_dim", 4096),
        "ffn_dim": config.whole("ffn_dim", 13824), "height": 480, "width": 832, "frames": 81,
    }  # fmt: skip


CLASSES: dict[str, Callable[[Fields], Table]] = {
    "UNet2DConditionModel": unet,
    "FluxTransformer2DModel": flux,
    "SD3Transformer2DModel": sd3,
    "QwenImageTransformer2DModel": qwen_image,
    "WanTransformer3DModel": wan,
}


def read_class(config: Fields) -> tuple[str, Table]:
    """The class of a part of a pipeline, and its `[model]` table.

    Raises:
        DamagedError: the class is not known, or a key of it is wrong.
    """
    name = config.text("_class_name", "")
    if name not in CLASSES:
        known = ", ".join(CLASSES)
        raise DamagedError(f"is of the class {printable(name[:60])!r}; of diffusers these are read: {known}")
    return name, {key: value for key, value in CLASSES[name](config).items() if value is not None}


def _numbers(config: Fields, key: str, default: tuple[int, ...] = (), *, each: int = 1) -> list[int]:
    """A list of whole numbers, or one number for all of them."""
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
