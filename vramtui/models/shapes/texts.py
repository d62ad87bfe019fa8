"""Encoders of text and translators by their generated shapes, and what their layers keep of a sequence."""

from collections.abc import Callable

from vramtui.models.families.keys import HIDDEN, Keys, layer_count, sizes_of
from vramtui.models.shapes.listed import listed_shapes
from vramtui.models.tensor_list import CacheList, TensorList

# Numbers of a token that a layer keeps: keys and values of the stream's width, or of their heads'.
Kept = Callable[[Keys], int]
DECODER_LAYERS = ("decoder_layers",)


def _wide(keys: Keys) -> int:
    return 2 * keys.whole(*HIDDEN)


def _heads(keys: Keys) -> int:
    sizes = sizes_of(keys)
    return sizes.keys + sizes.values


def _nothing(_keys: Keys) -> int:
    return 0


# By type; of those in the second table the encoder as well where the class is of a translator.
TEXTS: dict[str, Kept] = {
    **dict.fromkeys(
        ("albert", "convbert", "deberta", "deberta-v2", "distilbert", "gte", "jina_embeddings_v3", "layoutlm",
         "longformer", "luke", "modernbert", "mpnet", "mra", "yoso", "nystromformer", "nomic_bert", "squeezebert",
         "tapas", "opt", "git", "blip_text_model", "kosmos_2_text_model", "kosmos_2_5_text_model",
         "pp_formulanet_text"),
        _wide,
    ),
    **dict.fromkeys(("fnet", "funnel"), _nothing),
    **dict.fromkeys(("esmc", "ultrabert"), _heads),
    "mobilebert": lambda keys: 2 * keys.whole("true_hidden_size"),
    "pix2struct_text_model": lambda keys: 2 * keys.whole("num_heads") * keys.whole("d_kv"),
}  # fmt: skip
TRANSLATORS = frozenset({"bart", "mbart", "mvp", "plbart"})


def read_text(keys: Keys) -> tuple[TensorList, CacheList, bool]:
    """The tensors of a model, what its layers keep, and whether they are of the class that its config names.

    Raises:
        Damaged: a key that is needed is missing or wrong.
    """
    tensors, exact = listed_shapes(keys.values, "masked")
    return tensors, text_caches(keys), exact


def text_caches(keys: Keys) -> CacheList:
    """What layers keep of a sequence."""
    caches, kind = CacheList(), keys.text("model_type")
    depth = DECODER_LAYERS if kind in TRANSLATORS else ()
    caches.add(per_token=TEXTS.get(kind, _wide)(keys), layers=layer_count(keys, *depth))
    return caches
