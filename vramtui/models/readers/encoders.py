"""Encoders and encoder-decoders: what their config.json says, and what their code in transformers adds to it."""

from collections.abc import Callable
from functools import partial

from vramtui.models.families.modelled import activation
from vramtui.models.readers.bounded import Damaged
from vramtui.models.readers.fields import Fields, Table


def _labels(config: Fields) -> int:
    labels = config.values.get("id2label")
    return len(labels) if isinstance(labels, dict) and labels else int(config.whole("num_labels", 2))


def _encoder(config: Fields) -> Table:
    return {
        "kind": "encoder",
        "hidden_size": config.whole("hidden_size"),
        "num_hidden_layers": config.whole("num_hidden_layers"),
        "num_attention_heads": config.whole("num_attention_heads"),
        "intermediate_size": config.whole("intermediate_size"),
        "hidden_act": activation(config.text("hidden_act", "gelu")),
        "hidden_dropout": config.number("hidden_dropout_prob", 0.1),
        "attention_dropout": config.number("attention_probs_dropout_prob", 0.1),
        "num_labels": _labels(config),
    }


def bert(config: Fields, *, head: str, pooler: bool) -> Table:
    """BERT and RoBERTa with the head of an architecture."""
    return _encoder(config) | {
        "vocab_size": config.whole("vocab_size"),
        "type_vocab_size": config.whole("type_vocab_size", 2),
        "max_position_embeddings": config.whole("max_position_embeddings", 512),
        "pooler": pooler,
        "head": head,
    }


def vit(config: Fields, *, head: str, pooler: bool) -> Table:
    """A vision transformer: norms before attention and MLP, and after the last block."""
    return _encoder(config) | {
        "image_size": config.whole("image_size", 224),
        "patch_size": config.whole("patch_size", 16),
        "num_channels": config.whole("num_channels", 3),
        "norm_first": True,
        "norm_before": False,
        "norm_after": True,
        "hidden_dropout": config.number("hidden_dropout_prob", 0.0),
        "attention_dropout": config.number("attention_probs_dropout_prob", 0.0),
        "pooler": pooler,
        "head": head,
    }


def _clip_tower(config: Fields, hidden: int, *, heads: int, projected: bool) -> Table:
    width = config.whole("hidden_size", hidden)
    return {
        "kind": "encoder",
        "hidden_size": width,
        "num_hidden_layers": config.whole("num_hidden_layers", 12),
        "num_attention_heads": config.whole("num_attention_heads", heads),
        "intermediate_size": config.whole("intermediate_size", 4 * hidden),
        "hidden_act": activation(config.text("hidden_act", "quick_gelu")),
        "attention_dropout": config.number("attention_dropout", 0.0),
        "norm_first": True,
        "norm_after": True,
        "projection_dim": config.whole("projection_dim", 512) if projected else None,
    }


def clip_text(config: Fields, *, projected: bool) -> Table:
    """CLIP's text tower, or one like it: causal, norms before attention and MLP."""
    return _clip_tower(config, 512, heads=8, projected=projected) | {
        "vocab_size": config.whole("vocab_size", 49408),
        "max_position_embeddings": config.whole("max_position_embeddings", 77),
        "norm_before": False,
        "causal": True,
    }


def clip_vision(config: Fields, *, projected: bool) -> Table:
    """CLIP's vision tower: a norm before the first block too, no bias on the patches."""
    return _clip_tower(config, 768, heads=12, projected=projected) | {
        "image_size": config.whole("image_size", 224),
        "patch_size": config.whole("patch_size", 32),
        "num_channels": config.whole("num_channels", 3),
        "norm_before": True,
        "patch_bias": False,
    }


def t5(config: Fields) -> Table:
    """T5, with Flan's gated MLP where `feed_forward_proj` says so."""
    kind = config.text("feed_forward_proj", "relu")
    layers = config.whole("num_layers")
    return {
        "kind": "encoder-decoder",
        "d_model": config.whole("d_model"),
        "encoder_layers": layers,
        "decoder_layers": config.whole("num_decoder_layers", layers),
        "num_attention_heads": config.whole("num_heads"),
        "d_ff": config.whole("d_ff"),
        "d_kv": config.whole("d_kv", 64),
        "vocab_size": config.whole("vocab_size"),
        "gated_mlp": kind.startswith("gated-"),
        "hidden_act": "gelu_new" if kind == "gated-gelu" else activation(kind.removeprefix("gated-")),
        "relative_attention_num_buckets": config.whole("relative_attention_num_buckets", 32),
        "tie_word_embeddings": True,  # also where the config says no (transformers 5, T5Config.__post_init__)
        "dropout": config.number("dropout_rate", 0.1),
    }


def _two_sides(config: Fields, *, dropout: float) -> Table:
    for left, right in (("encoder_attention_heads", "decoder_attention_heads"), ("encoder_ffn_dim", "decoder_ffn_dim")):
        if config.whole(left) != config.whole(right):
            raise Damaged(f"has {left} other than {right}, which is not modelled")
    return {
        "kind": "encoder-decoder",
        "d_model": config.whole("d_model"),
        "encoder_layers": config.whole("encoder_layers"),
        "decoder_layers": config.whole("decoder_layers"),
        "num_attention_heads": config.whole("encoder_attention_heads"),
        "d_ff": config.whole("encoder_ffn_dim"),
        "vocab_size": config.whole("vocab_size"),
        "hidden_act": activation(config.text("activation_function", "gelu")),
        "norm": "layernorm",
        "bias": True,
        "tie_word_embeddings": config.flag("tie_word_embeddings", default=True),
        "dropout": config.number("dropout", dropout),
    }


def whisper(config: Fields) -> Table:
    """Whisper: spectrograms read by two convolutions, fixed positions on the encoder's side."""
    return _two_sides(config, dropout=0.0) | {
        "key_bias": False,
        "source_positions_trained": False,
        "max_source_positions": config.whole("max_source_positions", 1500),
        "max_target_positions": config.whole("max_target_positions", 448),
        "num_mel_bins": config.whole("num_mel_bins", 80),
    }


def bart(config: Fields) -> Table:
    """BART: positions that begin at 2, a norm after the embeddings, none at the end."""
    positions = config.whole("max_position_embeddings", 1024)
    return _two_sides(config, dropout=0.1) | {
        "max_source_positions": positions,
        "max_target_positions": positions,
        "position_offset": 2,
        "norm_embeddings": True,
        "final_norm": False,
        "final_bias": True,
    }


Read = Callable[[Fields], Table]
_bert_words, _bert_classes = partial(bert, head="mlm", pooler=False), partial(bert, head="classes", pooler=True)
# A label for each token, or where an answer starts and ends; its few numbers a token are not counted, only the first's.
_bert_tokens = partial(bert, head="classes", pooler=False)
# The classes whose every operator is followed; others of these types are read by their generated shapes.
ENCODERS: dict[str, Read] = {
    "BartForConditionalGeneration": bart,
    **{f"{name}Model": partial(bert, head="none", pooler=True) for name in ("Bert", "Roberta", "XLMRoberta")},
    **{f"{name}ForMaskedLM": _bert_words for name in ("Bert", "Roberta", "XLMRoberta")},
    **{f"{name}ForSequenceClassification": _bert_classes for name in ("Bert", "Roberta", "XLMRoberta")},
    **{f"{name}ForTokenClassification": _bert_tokens for name in ("Bert", "Roberta", "XLMRoberta")},
    **{f"{name}ForQuestionAnswering": _bert_tokens for name in ("Bert", "Roberta", "XLMRoberta")},
    "CLIPTextModel": partial(clip_text, projected=False),
    "CLIPTextModelWithProjection": partial(clip_text, projected=True),
    "CLIPVisionModel": partial(clip_vision, projected=False),
    "CLIPVisionModelWithProjection": partial(clip_vision, projected=True),
    "MT5ForConditionalGeneration": t5,
    "T5ForConditionalGeneration": t5,
    "ViTForImageClassification": partial(vit, head="classes", pooler=False),
    "ViTModel": partial(vit, head="none", pooler=True),
    "WhisperForConditionalGeneration": whisper,
}
# What a config without `architectures` is taken for.
USUAL_CLASSES = {
    "bart": "BartForConditionalGeneration",
    "bert": "BertModel",
    "clip_text_model": "CLIPTextModel",
    "clip_vision_model": "CLIPVisionModel",
    "mt5": "MT5ForConditionalGeneration",
    "roberta": "RobertaModel",
    "t5": "T5ForConditionalGeneration",
    "vit": "ViTModel",
    "whisper": "WhisperForConditionalGeneration",
    "xlm-roberta": "XLMRobertaModel",
}
