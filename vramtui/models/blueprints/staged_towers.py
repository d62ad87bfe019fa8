"""Towers of several stages, each wider than the one before: nets for images, codecs and vocoders; the language is that
of `blueprint`. A stage is written for as many as a config may list, and is there where it lists it.
"""

from collections.abc import Iterable, Iterator

MOST_STAGES = 8


def _bottleneck(into: int, wide: int, out: int, *, start: int = 0, middle: int = 0, times: int = 1) -> Iterator[str]:
    """MobileNet's block (Qin et al. 2024, arXiv 2404.10518): wider and narrower again, with up to two convolutions a
    channel, of `start` and `middle` pixels a side; RMS norms and a scale.
    """
    for channels, side, name in ((into, start, "start"), (wide, middle, "middle")):
        if side:
            yield f"conv_{name}: {channels}, 1, {side}, {side}; x {times}"
            yield f"norm_{name}: {channels}; x {times}"
    yield f"conv_wide: {wide}, {into}, 1, 1; x {times}"
    yield f"norm_wide: {wide}; x {times}"
    yield f"conv_out: {out}, {wide}, 1, 1; x {times}"
    yield f"norm_out: {out}; x {2 * times}"  # and the scale


def _pixel_attention(width: int, heads: int, keys: int, *, halved: bool, times: int) -> Iterator[str]:
    """Attention over pixels with one head of keys and values, which may be made of a quarter of the pixels."""
    yield f"norm: {width}; x {2 * times}"  # and the scale
    yield f"query: {heads * keys}, {width}; x {times}"
    yield f"key_value: {keys}, {width}; x {2 * times}"
    yield f"output: {width}, {heads * keys}; x {times}"
    if halved:
        yield f"conv_down: {width}, 1, 3, 3; x {2 * times}"
        yield f"norm_down: {width}; x {2 * times}"


def _mobilenet_v5() -> Iterable[str]:
    """`mobilenetv5_300m_enc` (timm 1.0, models/mobilenetv5.py), the one net that Gemma 3n's configs name."""
    yield "conv_stem: 64, 3, 3, 3; bias"
    yield "norm_stem: 64"
    for into, wide, times in ((64, 256, 1), (128, 512, 2)):
        yield f"conv_wide: {wide}, {into}, 3, 3; x {times}"
        yield f"conv_out: 128, {wide}, 1, 1; x {times}"
        yield f"norm: {wide}; x {times}"
        yield f"norm: 128; x {times}"
    yield from _bottleneck(128, 768, 256, start=3, middle=5)
    yield from _bottleneck(256, 1024, 256, start=5, times=2)
    yield from _bottleneck(256, 1024, 256, start=3, times=2)
    yield from _bottleneck(256, 1536, 640, start=5, middle=5)
    yield from _bottleneck(640, 2560, 640, start=5, times=7)
    yield from _bottleneck(640, 640, 640)
    yield from _pixel_attention(640, 12, 64, halved=True, times=14)
    yield from _bottleneck(640, 1280, 640, times=14)
    yield from _bottleneck(640, 3840, 1280, start=5, middle=5)
    yield from _pixel_attention(1280, 16, 96, halved=False, times=19)
    yield from _bottleneck(1280, 2560, 1280, times=19)
    # The last two stages joined; its last norm has no scale behind it.
    yield "conv_wide: 3840, 1920, 1, 1"
    yield "conv_out: 2048, 3840, 1, 1"
    yield "norm: 3840"
    yield "norm: 2048; x 2"


def _vibevoice() -> Iterable[str]:
    """An encoder of convolutions a channel alone (transformers 5.23, modular_vibevoice_acoustic_tokenizer.py)."""
    yield "conv_stem: num_filters, channels, kernel_size; bias"
    for stage in range(MOST_STAGES):
        there = f"if len(depths) > {stage}"
        width = f"num_filters * 2**{stage}"
        if stage:
            halved = f"num_filters * 2**{stage - 1}, 2 * downsampling_ratios[{stage - 1}]"
            yield f"conv_down: {width}, {halved}; bias; {there}"
        each = f"x depths[{stage}]; {there}"
        yield f"norm: {width}; {each.replace('x depths', 'x 4 * depths')}"
        yield f"up: ffn_expansion * {width}, {width}; bias; {each}"
        yield f"down: {width}, ffn_expansion * {width}; bias; {each}"
        yield f"conv_depth: {width}, 1, kernel_size; bias; {each}"
    yield "conv_head: h, num_filters * 2**(len(depths) - 1), kernel_size; bias"


def _mimi() -> Iterable[str]:
    """Mimi (Défossez et al. 2024, arXiv 2410.00037): an encoder and a decoder of convolutions with a transformer in
    each. The words of its codebooks are buffers, which are no parameters.
    """
    yield "ratios = get(upsampling_ratios, [8, 6, 5, 4])"
    yield "stages = len(ratios)"
    yield "conv_in: num_filters, audio_channels, kernel_size; bias"
    yield "conv_in: num_filters * 2**stages, h, kernel_size; bias"
    yield "conv_out: h, num_filters * 2**stages, last_kernel_size; bias"
    yield "conv_out: audio_channels, num_filters, last_kernel_size; bias"
    for stage in range(MOST_STAGES):
        there = f"if stages > {stage}"
        width = f"num_filters * 2**{stage}"
        both = f"x 2 * num_residual_layers; {there}"  # once in the encoder, once in the decoder
        # The way up is transposed and has its biases by its second size.
        yield f"conv_narrow: {width} // compress, {width}, residual_kernel_size; bias; {both}"
        yield f"conv_wide: {width}, {width} // compress, 1; bias; {both}"
        yield f"conv_down: 2 * {width}, {width}, 2 * ratios[stages - 1 - {stage}]; bias; {there}"
        yield f"conv_up: 2 * {width}, {width}, 2 * ratios[stages - 1 - {stage}]; {there}"
        yield f"conv_up: {width}; {there}"
    yield "conv_slower: h, h, 4"
    yield "conv_faster: h, h // upsample_groups, 4"
    yield "each 2 * n:"
    yield "qkvo: h, h; x 4"
    yield "up: i, h"
    yield "down: h, i"
    yield "norm: h; bias; x 2"
    yield "scale: h; x 2"
    yield "once:"
    yield "conv_codes: get(vector_quantization_hidden_dimension, 256), h, 1; x 4"


def _bigvgan() -> Iterable[str]:
    """BigVGAN (Lee et al. 2022, arXiv 2206.04658): each stage has half the width and a block for each kernel."""
    yield "first = upsample_initial_channel"
    yield "conv_in: first, mel_dim, 7; bias"
    for stage in range(MOST_STAGES):
        there = f"if len(upsample_rates) > {stage}"
        before, width = f"first // 2**{stage}", f"first // 2**{stage + 1}"
        yield f"conv_up: {before}, {width}, upsample_kernel_sizes[{stage}]; {there}"
        yield f"conv_up: {width}; {there}"
        # Convolutions of three dilations, two of each; what is learned of each activation is two vectors.
        yield f"conv_block: {width}, {width}, sum(resblock_kernel_sizes); x 6; {there}"
        yield f"conv_block: {width}; x 18 * len(resblock_kernel_sizes); {there}"
    last = "first // 2**len(upsample_rates)"
    yield f"activation: {last}; x 2"
    yield f"conv_out: 1, {last}, 7"


def _davit() -> str:
    """DaViT (Ding et al. 2022, arXiv 2204.03645): four stages, each of blocks over windows and over channels."""
    lines = []
    for stage in range(4):
        before = f"embed_dim[{stage - 1}]" if stage else "in_channels"
        lines += [
            f"w = embed_dim[{stage}]",
            f"conv_patch: w, {before}, patch_size[{stage}], patch_size[{stage}]; bias",
            f"norm_patch: {before}; bias; if get(patch_prenorm, [False, True, True, True])[{stage}]",
            f"norm_patch: w; bias; if not get(patch_prenorm, [False, True, True, True])[{stage}]",
            f"each 2 * depths[{stage}]:",
            "conv_depth: w, 1, 3, 3; bias; x 2",
            "norm: w; bias; x 2",
            "qkv: 3 * w, w; bias=qkv_bias",
            "proj: w, w; bias",
            "up: int(w * mlp_ratio), w; bias",
            "down: w, int(w * mlp_ratio); bias",
            "once:",
        ]
    return "\n".join(lines)


STAGED: dict[str, str] = {
    "gemma3n_vision": "\n".join(_mobilenet_v5()),
    "vibevoice_acoustic_tokenizer_encoder": "\n".join(_vibevoice()),
    "mimi": "\n".join(_mimi()),
    "qwen2_5_omni_bigvgan": "\n".join(_bigvgan()),
    "florence_vision": _davit(),
}
