"""A checkpoint of a decoder as a graph, with its weights as they are stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from heddle.graph import DType, Graph
from heddle.pipelines import weights
from heddle.pipelines.checkpoint import Checkpoint, GgufCheckpoint
from heddle.pipelines.models.decoder.config import DecoderConfig
from heddle.pipelines.models.decoder.model import language_model
from heddle.pipelines.models.decoder.traits import Family, ModelNames
from heddle.pipelines.models.embedder import decoder_embedder
from heddle.pipelines.models.products import AS_STORED, Asked, AsStored, Quantization
from heddle.pipelines.quantization import bits_of
from heddle.pipelines.sentence_head import read_head
from heddle.pipelines.stored.product import (
    BITS,
    FLOATS,
    FLOATS_OF_8_BITS,
    GROUPS,
    UNSIGNED,
    Product,
)
from heddle.pipelines.stored.selection import END, Stored
from heddle.runtime.errors import GraphError

if TYPE_CHECKING:
    from heddle.pipelines.weights import Array

LEFT = (
    "rotary_emb.inv_freq",
    ".attention.bias",
    ".attention.masked_bias",
    ".attn.bias",
    ".attn.masked_bias",
    ".k_scale",
    ".v_scale",
)
"""How those end that the configuration gives, masks, and scales of a cache in 8 bits."""


def build(
    found: Checkpoint | GgufCheckpoint,
    dtype: DType | None = None,
    quantization: Asked = AS_STORED,
    context: int | None = None,
) -> Graph:
    """The graph of the checkpoint `found`; its weights are those of `weights.select`.

    It is `decoder_embedder` where the folder says what makes an embedding of its tokens, as
    sentence-transformers writes it, else `language_model`.

    Args:
        found: The checkpoint.
        dtype: What the model computes in; None: what its embeddings are stored in, float32 where
            these are no floats.
        quantization: How the weights of products are held: those that are stored in as few bits
            stay so. `"float"`: all in floats.
        context: Tokens of the longest text; None: as many as the model takes.

    Raises:
        GraphError: It is a model that the graph does not compute, or weights are no floats, or of
            another model: the graph would leave some out; or none are integers, whose activations
            it is said how to round.
        ArtifactError: A file is missing or damaged.
    """
    config = DecoderConfig.of(found.values(), found.config, context)
    head = read_head(found.folder) if isinstance(found, Checkpoint) else None
    stored = weights.stored(found.weights)
    config = replace(config, family=_family(stored, config.family))
    dtypes = _dtypes(stored)
    names = _names(stored, config.family.names)
    embeddings = f"{names.prefix}{names.embeddings}{END}"
    if embeddings.removesuffix(END) not in stored.products:
        raise GraphError(
            f"{found.weights}: wanted {embeddings} in {', '.join(FLOATS)}, got none of them"
        )
    name, computed = found.name, dtype or dtypes.get(embeddings, DType.float32)
    rounded = quantization if isinstance(quantization, Quantization) else None
    held = {} if quantization == "float" else _held(stored, quantization)
    if isinstance(quantization, AsStored) and quantization.activations != "float":
        _check_integers(found.weights, held)
    if head is not None:
        graph = decoder_embedder(config, head, name, names, computed, rounded, dtypes, held)
    else:
        if config.tie_word_embeddings and _has_another_head(stored, names.head, embeddings):
            config = replace(config, tie_word_embeddings=False)
        graph = language_model(config, name, computed, rounded, dtypes, held=held, names=names)
    layers = f"{names.prefix}{names.layers}."
    numbers = range(len(config.layers), len(config.layers) + config.more_layers)
    later = tuple(f"{layers}{number}." for number in numbers)
    owned = (layers, f"{names.prefix}{names.norm}.", f"{names.head}.bias")
    for name, array in stored.arrays.items():
        known = stored.serves(graph.weights, name) or _is_left_out(name, array)
        if name.startswith(owned) and not name.startswith(later) and not known:
            raise GraphError(
                f"{found.weights}: wanted the weights of the model in {found.config}, got also "
                f"{name}: see num_hidden_layers, quantization_config and the keys for biases there"
            )
    return graph


def _family(stored: Stored, family: Family) -> Family:
    """The family, whose experts have two products for gates and what these are multiplied by.

    So quantizers and GGUF files have them, where a family's own checkpoints join them.
    """
    names = family.experts
    if names is None or not names.joined:
        return family
    ends = [f".{names.experts}.{name}" for name in (names.joined, names.gate, names.up)]
    joined, *apart = (any(name.endswith(end) for name in stored.products) for end in ends)
    return (
        family if joined or not all(apart) else replace(family, experts=replace(names, joined=""))
    )


def _names(stored: Stored, names: ModelNames) -> ModelNames:
    """What a checkpoint calls weights outside of layers.

    One of a model of images, too, has more before a family's names, and so has a sentence embedder
    less. Layers behind the last one may have embeddings, too, but by longer names.
    """

    def found(last: str, otherwise: str) -> str:
        ending = [name for name in stored.products if f".{name}".endswith(f".{last}")]
        return min(ending, key=len, default=otherwise)

    embeddings = found(names.embeddings, names.prefix + names.embeddings)
    prefix = embeddings.removesuffix(names.embeddings)
    return replace(names, prefix=prefix, head=found(names.head, names.head))


def _has_another_head(stored: Stored, head: str, embeddings: str) -> bool:
    """Whether logits have a weight that is not the embeddings', as training may leave it."""
    if head not in stored.products:
        return False
    own, tied = (stored.arrays.get(name) for name in (f"{head}{END}", embeddings))
    return own is None or tied is None or not np.array_equal(bits_of(own), bits_of(tied))


def _dtypes(stored: Stored) -> dict[str, DType]:
    """The dtype of each weight that is stored in floats, by its name."""
    kinds = {name: str(array.dtype) for name, array in stored.arrays.items()}
    kinds |= {f"{name}.weight": product.kind for name, product in stored.products.items()}
    return {name: DType(kind) for name, kind in kinds.items() if kind in FLOATS}


def _held(stored: Stored, asked: Quantization | AsStored) -> dict[str, Quantization]:
    """How a graph holds the weights of products that are stored as values and scales.

    Those that it cannot hold as they are become integers of 8 bits, unless it is said otherwise.
    """
    found = {}
    as_stored = isinstance(asked, AsStored)
    most = asked.bits if isinstance(asked, Quantization) else 8
    for name, product in stored.products.items():
        own = _exact(product)
        if own is None:
            if as_stored and product.kind not in FLOATS and product.shape[-1] % GROUPS == 0:
                found[name] = Quantization(8, GROUPS, asked.activations)
        elif own.bits <= most and not own.floats:
            found[name] = replace(own, activations=asked.activations)
        elif own.bits <= most and (as_stored or asked.activations == "float"):
            found[name] = own
    return found


def _check_integers(path: Path, held: Mapping[str, Quantization]) -> None:
    """Raises a GraphError where no weight is held in integers."""
    if all(own.floats for own in held.values()):
        raise GraphError(
            f"activations: wanted weights in integers in {path}, got floats alone; --quantize "
            "makes integers of them"
        )


def _exact(product: Product) -> Quantization | None:
    """The quantization that holds the very values of a product; None: there is none."""
    if not product.group_held:
        return None
    return Quantization(
        BITS.get(product.kind, 8),
        product.group_held,
        floats=DType(product.kind) if product.kind in FLOATS_OF_8_BITS else None,
        minimums=product.kind in UNSIGNED,
        scales=DType.float16 if product.scales_in == "float16" else None,
        ordered=product.order is not None,
    )


def _is_left_out(name: str, array: Array) -> bool:
    """Whether a tensor changes no result: writers of quantized weights add biases of zeros."""
    return name.endswith(LEFT) or (name.endswith(".bias") and not bits_of(array).any())
