"""What follows the encoder, as a folder that sentence-transformers wrote says (https://sbert.net).

`modules.json` names the modules, each with a folder for its own `config.json`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from heddle.pipelines import weights
from heddle.pipelines.json_files import read_list
from heddle.pipelines.models.config_values import Values
from heddle.pipelines.models.embedder import Dense, Head
from heddle.pipelines.models.pooling import MODES
from heddle.pipelines.quantization import bits_of, widened
from heddle.runtime.errors import GraphError

MODULES = "modules.json"

_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""Older names of the modes, in the order in which their vectors stand."""

_ACTIVATIONS = {
    "torch.nn.modules.linear.Identity": None,
    "torch.nn.modules.activation.Tanh": "tanh",
    "torch.nn.modules.activation.ReLU": "relu",
    "torch.nn.modules.activation.GELU": "gelu",
    "torch.nn.modules.activation.SiLU": "silu",
}


def read_head(folder: Path) -> Head | None:
    """What follows the encoder; None: the folder has no `modules.json`, or that nothing follows.

    Raises:
        GraphError: A module is of a kind, or at a place, that is not computed; or its file is
            missing or says something else than is wanted.
        ArtifactError: A file of weights is missing or damaged.
    """
    path = folder / MODULES
    if not path.is_file():
        return None
    listed = _modules(folder)
    kinds = [kind for kind, _ in listed]
    if kinds == ["Transformer"] and listed[0][1] == folder:
        return None
    if kinds[:2] != ["Transformer", "Pooling"] or listed[0][1] != folder:
        raise GraphError(
            f"{path}: wanted a Transformer in the folder itself and a Pooling, got "
            f"{' and '.join(f'{kind} in {place.name!r}' for kind, place in listed[:2]) or 'none'}"
        )
    (_, pooling), *others = listed[1:]
    head = Head(_modes(Values.read(pooling / "config.json")), normalized=False)
    for kind, place in others:
        if head.normalized:
            raise GraphError(f"{path}: wanted Normalize as the last module, got {kind} behind it")
        if kind == "Normalize":
            head = replace(head, normalized=True)
        elif kind == "Dense":
            head = replace(head, dense=(*head.dense, _dense(place)))
        else:
            raise GraphError(f"{path}: wanted Dense or Normalize behind Pooling, got {kind}")
    return head


def _modules(folder: Path) -> list[tuple[str, Path]]:
    """The kind of each module, and the folder with its files."""
    path = folder / MODULES
    try:
        rows = [(row["type"].rpartition(".")[2], row["path"]) for row in read_list(path)]
    except (TypeError, KeyError, AttributeError) as error:
        raise GraphError(f"{path}: wanted modules with a type and a path, got {error!r}") from None
    for kind, place in rows:
        if not isinstance(place, str) or Path(place).name != place or place == "..":
            raise GraphError(f"{path}: {kind}: wanted a folder inside, got {place!r}")
    return [(kind, folder / place) for kind, place in rows]


def _modes(values: Values) -> tuple[str, ...]:
    values.refuse(include_prompt=True)
    given = values.get("pooling_mode")
    if given is None:
        flags = [mode for name, mode in _FLAGS.items() if values.flag(name, default=False)]
        return tuple(flags) or ("mean",)
    modes = given if isinstance(given, list) and given else [given]
    for mode in modes:
        if mode not in MODES:
            raise values.error("pooling_mode", f"one of {', '.join(MODES)}", mode)
    return tuple(modes)


def _dense(folder: Path) -> Dense:
    values = Values.read(folder / "config.json")
    values.refuse(
        module_input_name="sentence_embedding",
        module_output_name="sentence_embedding",
        use_residual=False,
    )
    outputs, inputs = values.count("out_features"), values.count("in_features")
    activation = values.choice(
        "activation_function", among=_ACTIVATIONS, default="torch.nn.modules.activation.Tanh"
    )
    file = folder / "model.safetensors"
    arrays = weights.read(file)
    shapes: dict[str, tuple[int, ...]] = {"linear.weight": (outputs, inputs)}
    if values.flag("bias", default=True):
        shapes["linear.bias"] = (outputs,)
    found: dict[str, NDArray[np.float32]] = {}
    for name, shape in shapes.items():
        got = tuple(arrays[name].shape) if name in arrays else None
        if got != shape:
            raise GraphError(f"{file}: {name}: wanted {list(shape)}, got {got and list(got)}")
        found[name] = widened(bits_of(arrays[name]))
    return Dense(found["linear.weight"], found.get("linear.bias"), _ACTIVATIONS[activation])
