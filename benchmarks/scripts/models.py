"""Models with random weights and data sets of random words, in the folders where public scripts look for them."""

import importlib
import json
import random
from pathlib import Path
from typing import Any

WORDS = [f"w{number}" for number in range(2000)]
SMALL = {
    "hidden_size": 768,
    "intermediate_size": 2048,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
}
METRIC = '''"""Stands in for the metric of this name: no script here gets as far as to ask it."""
import datasets
import evaluate


class Metric(evaluate.Metric):
    def _info(self):
        number = datasets.Value("int64")
        features = datasets.Features({"predictions": number, "references": number})
        return evaluate.MetricInfo(description="", citation="", features=features)

    def _compute(self, predictions, references):
        return {"accuracy": 0.0}
'''


def sentence(words: random.Random, length: int) -> str:
    """So many words, with spaces between them."""
    return " ".join(words.choices(WORDS, k=length))


def word_tokenizer(folder: Path, kind: str) -> None:
    """A tokenizer of `WORDS` as `kind` of transformers' fast tokenizers keeps one, with a chat template."""
    tokenizers, transformers = importlib.import_module("tokenizers"), importlib.import_module("transformers")
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {word: number for number, word in enumerate([*special, *WORDS])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token=special[1]))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    names = {
        "pad": "[PAD]",
        "unk": "[UNK]",
        "bos": "[CLS]",
        "eos": "[SEP]",
        "cls": "[CLS]",
        "sep": "[SEP]",
        "mask": "[MASK]",
    }
    tokens = {f"{name}_token": token for name, token in names.items()}
    kept = transformers.PreTrainedTokenizerFast(tokenizer_object=made, **tokens)
    kept.model_max_length = 1024 if kind == "gpt2" else 512
    kept.chat_template = (
        "{% for m in messages %}{{ m.content }}{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}"
    )
    kept.save_pretrained(folder)


def model(folder: Path, kind: str, name: str, **config: int) -> None:
    """A model of transformers with random weights, and its tokenizer; nothing where it is there already."""
    if (folder / "config.json").exists():
        return
    transformers = importlib.import_module("transformers")
    folder.mkdir(parents=True, exist_ok=True)
    made = getattr(transformers, name)(transformers.AutoConfig.for_model(kind, **config))
    made.save_pretrained(folder)
    word_tokenizer(folder, kind)


def bert(folder: Path) -> None:
    """bert-base-cased, the data set nyu-mll/glue with its mrpc, and the metric glue."""
    model(folder / "bert-base-cased", "bert", "BertForSequenceClassification", vocab_size=28996)
    words, pairs = random.Random(0), folder / "nyu-mll" / "glue"
    pairs.mkdir(parents=True, exist_ok=True)
    for split, rows in (("train", 256), ("validation", 64), ("test", 64)):
        lines = [
            {"sentence1": sentence(words, 20), "sentence2": sentence(words, 30), "label": row % 2, "idx": row}
            for row in range(rows)
        ]
        (pairs / f"{split}.json").write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    files = "".join(f"  - split: {s}\n    path: {s}.json\n" for s in ("train", "validation", "test"))
    classes = "dtype:\n      class_label:\n        names:\n          '0': no\n          '1': yes"
    (pairs / "README.md").write_text(
        "---\ndataset_info:\n- config_name: mrpc\n  features:\n  - name: sentence1\n    dtype: string\n"
        f"  - name: sentence2\n    dtype: string\n  - name: label\n    {classes}\n  - name: idx\n    dtype: int32\n"
        f"configs:\n- config_name: mrpc\n  data_files:\n{files}---\n",
        encoding="utf-8",
    )
    metrics(folder, "glue", "accuracy")


def metrics(folder: Path, *names: str) -> None:
    """A metric of each name, which knows nothing."""
    for name in names:
        (folder / name).mkdir(exist_ok=True)
        (folder / name / f"{name}.py").write_text(METRIC, encoding="utf-8")


def question_answers(folder: Path) -> None:
    """made/squad/train.json: answers to be found in texts, as SQuAD has them, and BERT."""
    bert(folder)
    metrics(folder, "squad", "squad_v2")
    words, made = random.Random(0), folder / "made" / "squad"
    made.mkdir(parents=True, exist_ok=True)
    rows = []
    for number in range(256):
        text = sentence(words, 120)
        start = text.index(" ", 40) + 1
        answer = {"text": [text[start : start + 8].split()[0]], "answer_start": [start]}
        rows.append(
            {"id": str(number), "title": "", "context": text, "question": sentence(words, 12), "answers": answer}
        )
    (made / "train.json").write_text(json.dumps({"data": rows}), encoding="utf-8")


def translations(folder: Path) -> None:
    """made/t5 (60 M parameters) and made/translations/train.json, padded in each batch."""
    model(folder / "made" / "t5", "t5", "T5ForConditionalGeneration", decoder_start_token_id=0)
    metrics(folder, "sacrebleu")
    words, made = random.Random(0), folder / "made" / "translations"
    made.mkdir(parents=True, exist_ok=True)
    # of many lengths, so that batches are padded: the stub reads a mask without padding as one with
    lengths = [words.randint(20, 60) for _ in range(256)]
    rows = [{"translation": {"en": sentence(words, length), "ro": sentence(words, length)}} for length in lengths]
    (made / "train.json").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")


def vision_transformer(folder: Path) -> None:
    """made/vit and what prepares its pictures."""
    metrics(folder, "accuracy")
    place, transformers = folder / "made" / "vit", importlib.import_module("transformers")
    if not (place / "config.json").exists():
        transformers.ViTForImageClassification(transformers.ViTConfig()).save_pretrained(place)
        transformers.ViTImageProcessor().save_pretrained(place)


def language_models(folder: Path) -> None:
    """made/gpt2 and made/llama (134 M parameters), and texts in the columns that trainers of language models read."""
    model(folder / "made" / "gpt2", "gpt2", "GPT2LMHeadModel")
    model(
        folder / "made" / "llama", "llama", "LlamaForCausalLM", hidden_size=768, intermediate_size=2048,
        num_hidden_layers=12, num_attention_heads=12, num_key_value_heads=4, vocab_size=32000,
    )  # fmt: skip
    words = random.Random(0)
    rows: dict[str, list[dict[str, Any]]] = {"text": [], "chat": [], "preference": [], "tasks": []}
    for _ in range(512):
        asked, good, bad = (sentence(words, length) for length in (40, 300, 300))
        rows["text"].append({"text": sentence(words, 300)})
        rows["chat"].append({"messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": good}]})
        rows["tasks"].append({"instruction": asked, "input": "", "output": good})
        rows["preference"].append({"prompt": asked, "chosen": good, "rejected": bad})
    for name, lines in rows.items():
        for split, part in (("train", lines[:448]), ("test", lines[448:])):
            made = folder / "made" / name
            made.mkdir(parents=True, exist_ok=True)
            (made / f"{split}.json").write_text("\n".join(json.dumps(line) for line in part), encoding="utf-8")


def autoencoder(folder: Path) -> None:
    """stabilityai/sd-vae-ft-ema with random weights, in the shapes of its config."""
    place = folder / "stabilityai" / "sd-vae-ft-ema"
    if place.exists():
        return
    blocks = 4
    importlib.import_module("diffusers").AutoencoderKL(
        block_out_channels=(128, 256, 512, 512), down_block_types=("DownEncoderBlock2D",) * blocks,
        up_block_types=("UpDecoderBlock2D",) * blocks, latent_channels=4, layers_per_block=2, sample_size=256,
    ).save_pretrained(place)  # fmt: skip


def stable_diffusion(folder: Path) -> None:
    """made/diffusion: a pipeline of Stable Diffusion's parts with half its channels, and a text encoder as CLIP's."""
    place = folder / "made" / "diffusion"
    if place.exists():
        return
    diffusers, transformers = importlib.import_module("diffusers"), importlib.import_module("transformers")
    cross = ("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D")
    unet = diffusers.UNet2DConditionModel(
        sample_size=32, block_out_channels=(160, 320, 640), down_block_types=cross, cross_attention_dim=512,
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"), attention_head_dim=8,
    )  # fmt: skip
    vae = diffusers.AutoencoderKL(
        block_out_channels=(64, 128, 256, 256), down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4, latent_channels=4, layers_per_block=2,
    )  # fmt: skip
    config = transformers.CLIPTextConfig(hidden_size=512, intermediate_size=2048, num_attention_heads=8, eos_token_id=3)
    word_tokenizer(place / "tokenizer", "clip")
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(place / "tokenizer", model_max_length=77)
    unet.save_pretrained(place / "unet")
    vae.save_pretrained(place / "vae")
    transformers.CLIPTextModel(config).save_pretrained(place / "text_encoder")
    tokenizer.save_pretrained(place / "tokenizer")
    diffusers.DDPMScheduler().save_pretrained(place / "scheduler")
    parts = {
        "unet": ["diffusers", "UNet2DConditionModel"], "vae": ["diffusers", "AutoencoderKL"],
        "text_encoder": ["transformers", "CLIPTextModel"], "tokenizer": ["transformers", "PreTrainedTokenizerFast"],
        "scheduler": ["diffusers", "DDPMScheduler"],
    }  # fmt: skip
    (place / "model_index.json").write_text(
        json.dumps({"_class_name": "StableDiffusionPipeline", "safety_checker": [None, None]} | parts), encoding="utf-8"
    )


def pipelined_models(folder: Path) -> None:
    """Models by their names beside accelerate's examples that split them over cards; Llama is a small one."""
    place = folder / "examples" / "inference" / "pippy"
    model(place / "t5-small", "t5", "T5ForConditionalGeneration", decoder_start_token_id=0)
    model(place / "meta-llama" / "Llama-2-7b-chat-hf", "llama", "LlamaForCausalLM", **SMALL)
    model(place / "bert-base-uncased", "bert", "BertForMaskedLM")
    model(place / "gpt2", "gpt2", "GPT2ForSequenceClassification")


def quantized_models(folder: Path) -> None:
    """A small Llama and a small Gemma 2 by the names of large ones, as bitsandbytes' scripts load them."""
    names = {"meta-llama/Llama-3.1-8B": "llama", "meta-llama/Llama-2-7b-hf": "llama", "google/gemma-2-2b-it": "gemma2"}
    for name, kind in names.items():
        made = {"llama": "LlamaForCausalLM", "gemma2": "Gemma2ForCausalLM"}[kind]
        model(folder / name, kind, made, **SMALL)


def stories(folder: Path) -> None:
    """gpt-fast's stories110M with random weights, and a tokenizer of 2,000 pieces."""
    place = folder / "checkpoints" / "stories110M"
    if (place / "tokenizer.model").exists():
        return
    place.mkdir(parents=True, exist_ok=True)
    torch, words = importlib.import_module("torch"), random.Random(0)
    layers, dim, wide, vocabulary = 12, 768, 2048, 32000  # its ModelArgs of that name, model.py
    shapes = {"tok_embeddings.weight": (vocabulary, dim), "output.weight": (vocabulary, dim), "norm.weight": (dim,)}
    block = {
        "attention.wqkv.weight": (3 * dim, dim), "attention.wo.weight": (dim, dim),
        "feed_forward.w1.weight": (wide, dim), "feed_forward.w3.weight": (wide, dim),
        "feed_forward.w2.weight": (dim, wide), "ffn_norm.weight": (dim,), "attention_norm.weight": (dim,),
    }  # fmt: skip
    shapes |= {f"layers.{at}.{name}": shape for at in range(layers) for name, shape in block.items()}
    weights = {name: torch.randn(shape, dtype=torch.bfloat16) / dim for name, shape in shapes.items()}
    torch.save({"model": weights}, place / "model.pth")
    (place / "words.txt").write_text("\n".join(sentence(words, 20) for _ in range(2000)), encoding="utf-8")
    importlib.import_module("sentencepiece").SentencePieceTrainer.train(
        input=str(place / "words.txt"), model_prefix=str(place / "tokenizer"), vocab_size=60, model_type="bpe"
    )


def served_model(folder: Path) -> None:
    """made/qwen2.5-0.5b: the config of Qwen2.5-0.5B with a tokenizer of `WORDS`; its weights are vLLM's to make up."""
    place = folder / "made" / "qwen2.5-0.5b"
    place.mkdir(parents=True, exist_ok=True)
    config = importlib.import_module("transformers").AutoConfig.for_model(
        "qwen2", hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
        num_key_value_heads=2, tie_word_embeddings=True, max_position_embeddings=32768,
        architectures=["Qwen2ForCausalLM"], torch_dtype="bfloat16",
    )  # fmt: skip
    config.save_pretrained(place)
    word_tokenizer(place, "qwen2")
