"""Networks of pictures as PyTorch exports them to ONNX: those of transformers, not trained.

`pip install torch transformers onnx`. Their sizes are the defaults of their configurations but
where it is said; statistics of batch norms are drawn, so that none is the identity.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

NETWORKS: dict[str, tuple[str, str, int, dict[str, Any]]] = {
    "ViT": ("ViTForImageClassification", "ViTConfig", 224, {}),
    "DINOv2": (
        "Dinov2ForImageClassification",
        "Dinov2Config",
        224,
        {"hidden_size": 384, "num_attention_heads": 6, "image_size": 224},
    ),
    "Swin": ("SwinForImageClassification", "SwinConfig", 224, {}),
    "ConvNeXt": ("ConvNextForImageClassification", "ConvNextConfig", 224, {}),
    "RegNet": ("RegNetForImageClassification", "RegNetConfig", 224, {}),
    "MobileNetV2": ("MobileNetV2ForImageClassification", "MobileNetV2Config", 224, {}),
    "MobileViT": ("MobileViTForImageClassification", "MobileViTConfig", 256, {"image_size": 256}),
    "LeViT": ("LevitForImageClassification", "LevitConfig", 224, {}),
    "PVT": ("PvtForImageClassification", "PvtConfig", 224, {}),
    "FocalNet": ("FocalNetForImageClassification", "FocalNetConfig", 224, {}),
    "SegFormer": ("SegformerForSemanticSegmentation", "SegformerConfig", 224, {}),
    "DPT": ("DPTForDepthEstimation", "DPTConfig", 224, {"image_size": 224}),
    "Swin2SR": (
        "Swin2SRForImageSuperResolution",
        "Swin2SRConfig",
        64,
        {"embed_dim": 60, "depths": [2, 2], "num_heads": [6, 6], "image_size": 64},
    ),
}
"""Class, configuration, pixels along a side, and what is not the configuration's default."""


def write(name: str, path: Path) -> dict[str, np.ndarray]:
    """Writes the network `name`, whose first result is its only one; returns its inputs."""
    import torch
    import transformers

    kind, config, size, values = NETWORKS[name]
    torch.manual_seed(0)
    network = getattr(transformers, kind)(getattr(transformers, config)(**values)).eval()
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)

    class First(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, pixels: Any) -> Any:
            return self.network(pixel_values=pixels)[0]

    pixels = torch.randn(1, 3, size, size)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            First(), (pixels,), path, input_names=["pixels"], opset_version=17, dynamo=False
        )
    return {"pixels": pixels.numpy()}
