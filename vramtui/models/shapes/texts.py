"""Encoders of text and translators by their generated shapes, and what their layers keep of a sequence."""

from collections.abc import Callable

from vramtui.models.families.keys import CLASSES, HIDDEN, Keys, head_of, layer_count, sizes_of
from vramtui.models.shapes.listed import listed_shapes, named_class
from vramtui.models.tensor_list import CacheList, TensorList

# Numbers of a token that a layer keeps: keys and values of the stream's width, or of their heads'.
Kept = Callable[[Keys], int]
DECODER_LAYERS = ("decoder_layers",)


def _wide(keys: Keys) -> int:
    return 2 * keys.whole(*HIDDEN)


# Types whose decoders are models by themselves; if one reads only words, it looks at a missing source.
TRANSLATORS = frozenset({
    "bart", "bigbird_pegasus", "blenderbot", "blenderbot-small", "marian", "mbart", "mvp", "pegasus", "plbart",
    "trocr", "whisper",
})  # fmt: skip
# By type.
TEXTS: dict[str, Kept] = {
    **dict.fromkeys(
        (*TRANSLATORS, "bert", "bert-generation", "big_bird", "camembert", "data2vec-text", "electra", "ernie",
         "flaubert", "ibert", "megatron-bert", "rembert", "roberta", "roberta-prelayernorm", "roc_bert", "roformer",
         "xlm", "xlm-roberta", "xlm-roberta-xl", "xmod",
         "albert", "convbert", "deberta", "deberta-v2", "distilbert", "gte", "jina_embeddings_v3", "layoutlm",
         "longformer", "luke", "modernbert", "mpnet", "mra", "yoso", "nystromformer", "nomic_bert", "squeezebert",
         "tapas", "opt", "git", "blip_text_model", "kosmos_2_text_model", "kosmos_2_5_text_model",
         "pp_formulanet_text"),
        _wide,
    ),
    **dict.fromkeys(("fnet", "funnel"), lambda _keys: 0),
    **dict.fromkeys(("esmc", "ultrabert"), lambda keys: sizes_of(keys).keys + sizes_of(keys).values),
    "mobilebert": lambda keys: 2 * keys.whole("true_hidden_size"),
    "pix2struct_text_model": lambda keys: 2 * keys.whole("num_heads") * keys.whole("d_kv"),
}  # fmt: skip


def read_text(keys: Keys) -> tuple[TensorList, CacheList, bool]:
    """The tensors of a model, what its layers keep, and whether they are of the class that its config names."""
    role = "causal" if keys.text("model_type") in TRANSLATORS else "masked"
    tensors, exact = listed_shapes(keys.values, role)
    # A translator that is whole, or tells classes, has its encoder too: no stream of a decoder's depth stands for that.
    named = named_class(keys.values)
    is_whole = bool(named) and not named.endswith("ForCausalLM")
    exact = exact and not (role == "causal" and (is_whole or head_of(keys) == CLASSES))
    return tensors, text_caches(keys), exact


def text_caches(keys: Keys) -> CacheList:
    caches, kind = CacheList(), keys.text("model_type")
    depth = DECODER_LAYERS if kind in TRANSLATORS else ()
    caches.add(per_token=TEXTS.get(kind, _wide)(keys), layers=layer_count(keys, *depth))
    return caches
