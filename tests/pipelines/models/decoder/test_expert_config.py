"""What a configuration says of a mixture of experts, and what is refused by name."""

import pytest
from decoder_cases import config_of

from heddle.pipelines.models.decoder.config import DecoderConfig
from heddle.pipelines.models.decoder.expert_config import Experts
from heddle.pipelines.models.decoder.traits import Router
from heddle.runtime.errors import GraphError


def experts(name: str, **changes) -> Experts:
    found = DecoderConfig.of(config_of(name) | changes).experts
    assert found is not None
    return found


def sparse(name: str, **changes) -> list[bool]:
    return [layer.sparse for layer in DecoderConfig.of(config_of(name) | changes).layers]


def test_what_is_read():
    found = experts("glm4_moe")
    assert (found.count, found.chosen, found.size, found.shared) == (6, 2, 48, 48)
    assert (found.groups, found.chosen_groups, found.scale) == (3, 2, 1.5)
    assert (found.router, found.normalized) == (Router("sigmoid", best=2), True)
    assert experts("glm4_moe", n_shared_experts=0).shared == 0
    assert experts("ernie4_5_moe").shared == 2 * 48
    assert experts("ernie4_5_moe", moe_norm_min=0.5).least_share == 0.5
    assert experts("granitemoeshared").shared == 96
    assert experts("granitemoeshared", shared_intermediate_size=0).shared == 0
    assert experts("glm4_moe_lite", routed_scaling_factor=None).scale == 1.8


def test_sizes_that_are_said_for_each_layer():
    assert experts("hunyuan_moe", num_experts=[6, 6], moe_topk=3).chosen == 3
    with pytest.raises(GraphError, match=r"num_experts_per_tok: wanted an integer .*, got \[2, 3"):
        experts("hunyuan_moe", moe_topk=[2, 3])
    with pytest.raises(GraphError, match=r"num_experts_per_tok: wanted an integer .*, got \[2\]$"):
        experts("hunyuan_moe", moe_topk=[2])


def test_a_number_that_is_false_is_none():
    """As Hunyuan-A13B has those of groups."""
    none = dict.fromkeys(("n_group", "topk_group", "routed_scaling_factor"), False)
    assert experts("hunyuan_moe", **none) == experts("hunyuan_moe")
    assert experts("glm4_moe", **none).scale == 1


def test_layers_with_experts():
    assert sparse("glm4_moe") == [False, True]
    assert sparse("glm4_moe", first_k_dense_replace=0) == [True, True]
    assert sparse("ernie4_5_moe") == [False, True, False]
    assert sparse("ernie4_5_moe", moe_layer_end_index=-1) == [False, True, True]
    assert sparse("ernie4_5_moe", moe_layer_interval=2) == [False, True, False]


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("glm4_moe", {"n_group": 4}, "n_group: wanted a divisor of 6 experts, got 4$"),
        ("glm4_moe", {"topk_group": 4}, "topk_group: wanted at most 3 groups, got 4$"),
        (
            "glm4_moe",
            {"n_group": 6},
            "n_group: wanted groups of at least 2 experts, got 6 of 1$",
        ),
        (
            "glm4_moe",
            {"num_experts_per_tok": 5},
            "num_experts_per_tok: wanted at most 4 experts, got 5$",
        ),
        ("glm4_moe", {"n_shared_experts": -1}, "n_shared_experts: wanted an integer of at least 0"),
        (
            "glm4_moe",
            {"routed_scaling_factor": 0},
            "routed_scaling_factor: wanted a finite number above 0, got 0$",
        ),
        ("glm4_moe", {"first_k_dense_replace": -1}, "first_k_dense_replace: wanted an integer"),
        ("glm4_moe", {"norm_topk_prob": 1}, "norm_topk_prob: wanted true or false, got 1$"),
        ("glm4_moe", {"scoring_func": "softmax"}, "scoring_func: wanted sigmoid, got 'softmax'$"),
        ("glm4_moe", {"num_experts": 8}, "n_routed_experts: wanted 8, as num_experts says, got 6$"),
        ("ernie4_5_moe", {"norm_topk_prob": False}, "norm_topk_prob: wanted True, got False$"),
        ("ernie4_5_moe", {"moe_layer_end_index": -2}, "moe_layer_end_index: wanted an integer of"),
        ("ernie4_5_moe", {"moe_norm_min": "x"}, "least_share: wanted a finite number above 0, got"),
        ("hunyuan_moe", {"moe_layer_num_skipped": 1}, "moe_layer_num_skipped: wanted 0, got 1$"),
        ("qwen3_moe", {"n_shared_experts": 1}, "n_shared_experts: wanted none, got 48 columns of"),
    ],
)
def test_what_is_refused(name, change, message):
    with pytest.raises(GraphError, match=message):
        experts(name, **change)
