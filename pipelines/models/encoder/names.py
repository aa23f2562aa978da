"""What the checkpoints of each family of encoders call their weights."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Names:
    """The names of an encoder's parts, without the `.weight` and `.bias` of each.

    Attributes:
        layer: What stands before the names of a layer's parts; `{}` is its number.
        qkv: The products for queries, keys and values: three, or one that makes all of them.
        inner: The products in front of the activation: of a gated one two, first the one that is
            activated, or one that makes both.
    """

    words: str = "embeddings.word_embeddings"
    positions: str = "embeddings.position_embeddings"
    types: str = "embeddings.token_type_embeddings"
    embedding_norm: str = "embeddings.LayerNorm"
    relative: str = "encoder.relative_attention_bias"
    layer: str = "encoder.layer.{}"
    qkv: tuple[str, ...] = ("attention.self.query", "attention.self.key", "attention.self.value")
    attention: str = "attention.output.dense"
    attention_norm: str = "attention.output.LayerNorm"
    inner: tuple[str, ...] = ("intermediate.dense",)
    outer: str = "output.dense"
    outer_norm: str = "output.LayerNorm"
    final_norm: str = "final_norm"


_BERT = Names()

NAMES = {
    "bert": _BERT,
    "roberta": _BERT,
    "xlm-roberta": _BERT,
    "mpnet": replace(
        _BERT,
        qkv=("attention.attn.q", "attention.attn.k", "attention.attn.v"),
        attention="attention.attn.o",
        attention_norm="attention.LayerNorm",
    ),
    "distilbert": replace(
        _BERT,
        layer="transformer.layer.{}",
        qkv=("attention.q_lin", "attention.k_lin", "attention.v_lin"),
        attention="attention.out_lin",
        attention_norm="sa_layer_norm",
        inner=("ffn.lin1",),
        outer="ffn.lin2",
        outer_norm="output_layer_norm",
    ),
    "modernbert": replace(
        _BERT,
        words="embeddings.tok_embeddings",
        embedding_norm="embeddings.norm",
        layer="layers.{}",
        qkv=("attn.Wqkv",),
        attention="attn.Wo",
        attention_norm="attn_norm",
        inner=("mlp.Wi",),
        outer="mlp.Wo",
        outer_norm="mlp_norm",
    ),
    "nomic_bert": replace(
        _BERT,
        embedding_norm="emb_ln",
        layer="encoder.layers.{}",
        qkv=("attn.Wqkv",),
        attention="attn.out_proj",
        attention_norm="norm1",
        inner=("mlp.fc12", "mlp.fc11"),
        outer="mlp.fc2",
        outer_norm="norm2",
    ),
}
"""By `model_type`."""
