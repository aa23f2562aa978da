"""Records what tiny encoders compute in `encoders.npz`, by transformers and sentence-transformers.

    pip install torch==2.13.0 transformers==5.24.0 sentence-transformers==6.2.0 safetensors numpy
    python tests/golden/make_encoders.py

Each model has weights that `encoder_weights.py` draws, by the names that its checkpoint has, so
that none are recorded. It runs in float64 from its float32 weights; results are rounded to float32
once. For each model `NAME` there is `NAME.config`, its configuration as JSON (UTF-8 in uint8);
`NAME.tokens` int32 [texts, longest], filled up with the model's padding; `NAME.lengths` int64;
and of an encoder `NAME.hidden` float32 [tokens, width], the last hidden state of all tokens but
the padding; of a cross-encoder `NAME.types` int32, the segment of each token, and `NAME.logits`
float32 [texts].

`pooled.MODE` float32 [texts, width] is what the pooling of this mode makes of `bert.hidden`, and
`dense` what a dense layer of `DENSE` with tanh and then a normalisation make of `pooled.mean`.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from encoder_weights import weight
from safetensors.numpy import load_file, save_file
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

SIZES = {
    "vocab_size": 60,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 40,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 3,
    "cls_token_id": 2,
    "sep_token_id": 3,
}

BERT = {"model_type": "bert", "type_vocab_size": 2, "layer_norm_eps": 1e-12, "hidden_act": "gelu"}
ROBERTA = {**BERT, "model_type": "roberta", "pad_token_id": 1, "layer_norm_eps": 1e-5}
XLM = {**ROBERTA, "model_type": "xlm-roberta", "type_vocab_size": 1}
MPNET = {
    "model_type": "mpnet",
    "pad_token_id": 1,
    "max_position_embeddings": 164,
    "layer_norm_eps": 1e-5,
    "hidden_act": "gelu",
}
DISTILBERT = {
    "model_type": "distilbert",
    "dim": 32,
    "hidden_dim": 48,
    "n_layers": 2,
    "n_heads": 2,
    "activation": "gelu",
}
MODERN = {
    "model_type": "modernbert",
    "num_hidden_layers": 4,
    "local_attention": 8,
    "global_rope_theta": 160000.0,
    "local_rope_theta": 10000.0,
}
BIASED = {
    **MODERN,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "attention_bias": True,
    "mlp_bias": True,
    "norm_bias": True,
}
NOMIC = {
    "model_type": "nomic_bert",
    "type_vocab_size": 2,
    "hidden_act": "silu",
    "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
}

ENCODERS = {
    "bert": BERT,
    "roberta": ROBERTA,
    "xlm-roberta": XLM,
    "mpnet": MPNET,
    "distilbert": DISTILBERT,
    "modernbert": MODERN,
    "modernbert_biased": BIASED,
    "nomic_bert": NOMIC,
}

SCORERS = {
    "bert_pairs": BERT,
    "roberta_pairs": ROBERTA,
    "xlm-roberta_pairs": XLM,
    "mpnet_pairs": MPNET,
    "distilbert_pairs": DISTILBERT,
    "modernbert_pairs": MODERN,
    "modernbert_mean_pairs": {**BIASED, "classifier_pooling": "mean", "classifier_bias": True},
    "nomic_bert_pairs": NOMIC,
}

LENGTHS = {"mpnet": (150, 9)}
"""MPNet's positions share biases from 16 on, and from 128 on all of them one; others have few."""

FEW = (24, 9, 1)

DENSE = (20, 32)
"""Outputs and inputs; the weights have the names `linear.weight` and `linear.bias`."""


def model_of(values: dict[str, object], kind: type) -> torch.nn.Module:
    """The model in float64, with the weights that are drawn."""
    names = SIZES.keys() - {"hidden_size", "intermediate_size", "num_hidden_layers"}
    sizes = {n: SIZES[n] for n in names - {"num_attention_heads"}} if "dim" in values else SIZES
    config = AutoConfig.for_model(**{**sizes, **values})
    with TemporaryDirectory() as folder:
        kind.from_config(config).save_pretrained(folder)
        file = Path(folder) / "model.safetensors"
        arrays = {name: weight(name, array.shape) for name, array in load_file(file).items()}
        save_file(arrays, file, {"format": "pt"})
        model, report = kind.from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    return model.eval().double()


def texts_of(name: str, padding: int) -> tuple[np.ndarray, np.ndarray]:
    """Random tokens, of which none is special, and the lengths."""
    lengths = np.array(LENGTHS.get(name, FEW))
    tokens = np.random.default_rng(11).integers(
        4, SIZES["vocab_size"], (len(lengths), max(lengths))
    )
    return np.where(np.arange(max(lengths)) < lengths[:, None], tokens, padding), lengths


def record(name: str, values: dict[str, object], scores: bool) -> dict[str, np.ndarray]:
    """The arrays of one model."""
    values = {**values, "num_labels": 1} if scores else values
    model = model_of(values, AutoModelForSequenceClassification if scores else AutoModel)
    tokens, lengths = texts_of(name, model.config.pad_token_id)
    places = np.arange(tokens.shape[1])
    mask = places < lengths[:, None]
    inputs = {
        "input_ids": torch.from_numpy(tokens),
        "attention_mask": torch.from_numpy(mask).long(),
    }
    types = (
        (places > lengths[:, None] // 2) & mask & (getattr(model.config, "type_vocab_size", 1) > 1)
    )
    if scores and types.any():
        inputs["token_type_ids"] = torch.from_numpy(types).long()
    with torch.no_grad():
        found = model(**inputs)
    arrays = {
        "config": np.frombuffer(model.config.to_json_string().encode(), np.uint8),
        "tokens": tokens.astype(np.int32),
        "lengths": lengths,
    }
    if scores:
        arrays["types"] = types.astype(np.int32)
        arrays["logits"] = found.logits[:, 0].numpy().astype(np.float32)
        print(name, arrays["logits"])
    else:
        arrays["hidden"] = found.last_hidden_state.numpy()[mask].astype(np.float32)
        print(name, np.abs(arrays["hidden"]).max())
    return {f"{name}.{key}": array for key, array in arrays.items()}


def pooled(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What follows the encoder of `bert`."""
    lengths, rows = arrays["bert.lengths"], arrays["bert.hidden"]
    mask = np.arange(max(lengths)) < lengths[:, None]
    hidden = np.full((*mask.shape, rows.shape[1]), 7.0)
    hidden[mask] = rows
    given = {"token_embeddings": torch.from_numpy(hidden), "attention_mask": torch.from_numpy(mask)}
    found = {}
    for mode in Pooling.POOLING_MODES:
        result = Pooling(rows.shape[1], mode)(
            {**given, "attention_mask": given["attention_mask"].long()}
        )
        found[f"pooled.{mode}"] = result["sentence_embedding"]
    outputs, inputs = DENSE
    dense = Dense(inputs, outputs, activation_function=torch.nn.Tanh()).double()
    state = {n: torch.from_numpy(weight(n, tuple(a.shape))) for n, a in dense.state_dict().items()}
    dense.load_state_dict(state)
    with torch.no_grad():
        result = Normalize()(dense({"sentence_embedding": found["pooled.mean"]}))
    found["dense"] = result["sentence_embedding"]
    return {name: array.numpy().astype(np.float32) for name, array in found.items()}


def main() -> None:
    """Computes the references and writes the file next to this script."""
    arrays: dict[str, np.ndarray] = {}
    for name, values in ENCODERS.items():
        arrays |= record(name, values, scores=False)
    for name, values in SCORERS.items():
        arrays |= record(name, values, scores=True)
    arrays |= pooled(arrays)
    np.savez_compressed(Path(__file__).with_name("encoders.npz"), **arrays)


if __name__ == "__main__":
    main()
