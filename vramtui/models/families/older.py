"""Encoders of BERT's kind, with a head for words, and the decoder half of translators of BART's kind."""

from collections.abc import Callable
from functools import partial

from vramtui.models.families.family import Family
from vramtui.models.families.keys import (
    BARE,
    CLASSES,
    FFN,
    HEADS,
    HIDDEN,
    Keys,
    head_of,
    labels_of,
    layer_count,
)
from vramtui.models.tensor_list import CacheList, TensorList

Whole = Callable[[TensorList, CacheList, Keys, Family], None]
More = Callable[[TensorList, Keys], None]


def _nothing(_tensors: TensorList, _keys: Keys) -> None:
    """No more than the others."""


def bert(
    tensors: TensorList,
    caches: CacheList,
    keys: Keys,
    _family: Family,
    *,
    head: str = "transform",
    last_norm: bool = False,
    token_types: bool = True,
    positions: bool = True,
    embed_norm: bool = True,
    pooler: bool = False,
    bare_pooler: bool = True,
    more: More = _nothing,
) -> None:
    """Embeddings of words, positions and segments, layers with biases everywhere, and a head over all words.

    Args:
        tensors: get its tensors.
        caches: get its layers' keys and values.
        keys: its config.
        head: a layer before the output's bias (`transform`), or that bias alone (`bias`).
        last_norm: a norm after the last layer.
        token_types: an embedding of segments.
        positions: learned positions.
        embed_norm: a norm after the embeddings.
        pooler: a layer on the first token.
        bare_pooler: whether the model without a head has one.
        more: what else there is.
    """
    hidden, vocab = keys.whole(*HIDDEN), keys.whole("vocab_size")
    width = keys.maybe("embedding_size", "input_embedding_size") or hidden
    tensors.place = "outside"
    tensors.add("embed_tokens", vocab, width)
    if positions:
        tensors.add("embed_positions", keys.whole("max_position_embeddings", default=512), width)
    if token_types and keys.maybe("type_vocab_size"):
        tensors.add("embed_token_types", keys.whole("type_vocab_size"), width)
    if embed_norm:
        tensors.norm("embed_norm", width, bias=True)
    if width != hidden:
        tensors.linear("embed_projection", hidden, width, bias=True)
    tensors.place = "layers"
    _bert_layers(tensors, caches, keys, hidden)
    tensors.place = "outside"
    if last_norm:
        tensors.norm("norm", hidden, bias=True)
    if pooler:
        tensors.linear("pooler", hidden, hidden, bias=True)
    _bert_head(tensors, keys, head, width, pooled=bare_pooler and not pooler)
    more(tensors, keys)


def _bert_head(tensors: TensorList, keys: Keys, head: str, width: int, *, pooled: bool) -> None:
    """Over words, over classes, or none, with a pooler in its place where `pooled` says so."""
    hidden, vocab, task = keys.whole(*HIDDEN), keys.whole("vocab_size"), head_of(keys)
    if task == CLASSES:
        tensors.linear("class_dense", hidden, hidden, bias=True)
        tensors.linear("class_out", labels_of(keys), hidden, bias=True)
    elif task == BARE and pooled:
        tensors.linear("pooler", hidden, hidden, bias=True)
    if task or not head:
        return
    if head == "transform":
        out = keys.maybe("output_embedding_size") or width
        tensors.linear("head_dense", out, hidden, bias=True)
        tensors.norm("head_norm", out, bias=True)
        if not keys.flag("tie_word_embeddings", default=True):
            tensors.add("lm_head", vocab, out)
    tensors.add("lm_head", vocab)


def _bert_layers(tensors: TensorList, caches: CacheList, keys: Keys, hidden: int) -> None:
    layers, ffn = layer_count(keys), keys.maybe(*FFN) or 4 * hidden
    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        tensors.linear(name, hidden, hidden, bias=True, count=layers)
    tensors.linear("up_proj", ffn, hidden, bias=True, count=layers)
    tensors.linear("down_proj", hidden, ffn, bias=True, count=layers)
    tensors.norm("layer_norm", hidden, bias=True, count=2 * layers)
    caches.add(per_token=2 * hidden, layers=layers)


def roc_bert_tables(tensors: TensorList, keys: Keys) -> None:
    """Embeddings of how words are pronounced and written."""
    hidden = keys.whole(*HIDDEN)
    sound, form = keys.whole("pronunciation_embed_dim", default=768), keys.whole("shape_embed_dim", default=512)
    tensors.add("embed_pronunciation", keys.whole("pronunciation_vocab_size", default=910), sound)
    tensors.add("embed_shape", keys.whole("shape_vocab_size", default=24858), form)
    tensors.linear("map_inputs", hidden, hidden + sound + form, bias=True)


def roformer_positions(tensors: TensorList, keys: Keys) -> None:
    """Sines and cosines kept as a table."""
    width = keys.whole(*HIDDEN) // keys.whole(*HEADS)
    tensors.add("embed_positions", keys.whole("max_position_embeddings", default=1536), width)


def xmod_adapters(tensors: TensorList, keys: Keys) -> None:
    """Adapters for each language."""
    hidden, layers = keys.whole(*HIDDEN), layer_count(keys)
    inner = hidden // keys.whole("adapter_reduction_factor", default=2)
    count = layers * max(1, len(keys.items("languages")))
    tensors.place = "layers"
    tensors.linear("adapter_dense1", inner, hidden, bias=True, count=count)
    tensors.linear("adapter_dense2", hidden, inner, bias=True, count=count)


def xlm_tables(tensors: TensorList, keys: Keys) -> None:
    """Languages, where there are several."""
    languages = keys.whole("n_langs", default=1)
    if languages > 1 and keys.flag("use_lang_emb", default=True):
        tensors.add("embed_languages", languages, keys.whole(*HIDDEN))


def half_decoder(
    tensors: TensorList,
    caches: CacheList,
    keys: Keys,
    _family: Family,
    *,
    positions: tuple[str, int] | None = ("max_position_embeddings", 0),
    embed_norm: bool = False,
    last_norm: bool = False,
    bias: bool = True,
    key_bias: bool = True,
    own_head: bool = False,
) -> None:
    """A translator's decoder alone: it attends to itself, and to a source that is not there."""
    hidden, vocab = keys.whole(*HIDDEN), keys.whole("decoder_vocab_size", "vocab_size")
    layers, ffn = layer_count(keys, "decoder_layers"), keys.whole("decoder_ffn_dim", *FFN)
    tensors.place = "outside"
    tensors.add("embed_tokens", vocab, hidden)
    if positions is not None:
        tensors.add("embed_positions", keys.whole(positions[0]) + positions[1], hidden)
    if embed_norm:
        tensors.norm("embed_norm", hidden, bias=True)
    if last_norm:
        tensors.norm("norm", hidden, bias=True)
    if own_head or not keys.flag("tie_word_embeddings", default=True):
        tensors.add("lm_head", vocab, hidden)
    tensors.place = "layers"
    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        tensors.linear(name, hidden, hidden, bias=bias and (key_bias or name != "k_proj"), count=2 * layers)
    tensors.linear("up_proj", ffn, hidden, bias=True, count=layers)
    tensors.linear("down_proj", hidden, ffn, bias=True, count=layers)
    tensors.norm("layer_norm", hidden, bias=True, count=3 * layers)
    caches.add(per_token=2 * hidden, layers=layers)


def _of(build: Whole, **changes: object) -> Family:
    return Family(whole=partial(build, **changes), tied=True)


BERT = _of(bert)
UNPOOLED = {"bare_pooler": False}
TWO_MORE = ("max_position_embeddings", 2)
OLDER: dict[str, Family] = {
    **dict.fromkeys(
        ("bert", "camembert", "data2vec-text", "ernie", "roberta", "xlm-roberta", "ibert"), BERT
    ),
    "big_bird": _of(bert, pooler=True),
    "electra": _of(bert, **UNPOOLED),
    "bert-generation": _of(bert, head="bias", token_types=False),
    "megatron-bert": _of(bert, embed_norm=False, last_norm=True),
    "rembert": _of(bert),
    "roberta-prelayernorm": _of(bert, last_norm=True),
    "roc_bert": _of(bert, more=roc_bert_tables),
    "roformer": _of(bert, positions=False, more=roformer_positions, **UNPOOLED),
    "xlm-roberta-xl": _of(bert, embed_norm=False, last_norm=True),
    "xmod": _of(bert, more=xmod_adapters),
    "xlm": _of(bert, head="bias", token_types=False, more=xlm_tables, **UNPOOLED),
    "flaubert": _of(bert, head="bias", token_types=False, more=xlm_tables, **UNPOOLED),
    "bart": _of(half_decoder, positions=TWO_MORE, embed_norm=True),
    "bigbird_pegasus": _of(half_decoder, embed_norm=True, bias=False, own_head=True),
    "blenderbot": _of(half_decoder, last_norm=True),
    "blenderbot-small": _of(half_decoder, embed_norm=True),
    "marian": _of(half_decoder),
    "mbart": _of(half_decoder, positions=TWO_MORE, embed_norm=True, last_norm=True),
    "mvp": _of(half_decoder, positions=TWO_MORE, embed_norm=True),
    "pegasus": _of(half_decoder, last_norm=True),
    "plbart": _of(half_decoder, positions=TWO_MORE, embed_norm=True),
    "trocr": _of(half_decoder, positions=TWO_MORE, embed_norm=True),
    "whisper": _of(half_decoder, positions=("max_target_positions", 0), last_norm=True, key_bias=False),
    "biogpt": Family(
        norm=2, gated=False, bias=True, mlp_bias=True, tied=True, positions=TWO_MORE,
    ),
}  # fmt: skip

# Whose heads for classes, and none, are written down as well.
BERT_LIKE = frozenset({
    "big_bird", "camembert", "data2vec-text", "electra", "ernie", "ibert", "megatron-bert", "roberta-prelayernorm",
    "roc_bert", "roformer", "xlm-roberta-xl", "xmod",
})  # fmt: skip
