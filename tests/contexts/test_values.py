import math
import re

import numpy as np
import pytest

from heddle.contexts import (
    GenerationStatus,
    LogProbabilities,
    RequestID,
    SamplingParams,
    SpecDecodingState,
    TextGenerationStatus,
)


def test_only_active_is_not_done():
    assert TextGenerationStatus is GenerationStatus
    assert [status.value for status in GenerationStatus if not status.is_done] == ["active"]
    assert GenerationStatus("cancelled").is_done
    assert GenerationStatus.ACTIVE == "active"


def test_request_ids():
    assert RequestID() != RequestID()
    assert RequestID("a") == "a"
    assert (RequestID("a").value, type(RequestID("a").value)) == ("a", str)
    with pytest.raises(ValueError, match="non-empty"):
        RequestID("")


def test_log_probabilities_compare_by_element():
    one = LogProbabilities((-0.5,), [{1: -0.5}])
    assert one == LogProbabilities([-0.5], [{1: -0.5}])
    assert one != LogProbabilities([-0.5], [{2: -0.5}])
    with pytest.raises(ValueError, match="got 0 for 1 tokens"):
        LogProbabilities([-0.5], [])


def test_sampling_defaults_are_the_documented_ones():
    assert SamplingParams() == SamplingParams(
        top_k=1,
        top_p=1,
        min_p=0.0,
        temperature=1,
        frequency_penalty=0.0,
        presence_penalty=0.0,
        repetition_penalty=1.0,
        max_new_tokens=None,
        min_new_tokens=0,
        ignore_eos=False,
        stop=None,
        stop_token_ids=None,
        detokenize=True,
        seed=0,
    )


@pytest.mark.parametrize(
    ("name", "bad", "good"),
    [
        ("top_k", (0, -2, 1.5, True, "4", None, 1 << 63), (-1, 1, np.int64(4), (1 << 63) - 1)),
        ("top_p", (0, 1.01, math.nan, "1"), (1e-9, 1)),
        ("min_p", (-0.1, 1.1, math.nan, None, np.ones(2)), (0, 1)),
        (
            "temperature",
            (-1, math.inf, math.nan, "hot", 1e300, True),
            (0, 5, np.float16(0.5), 1e30),
        ),
        ("repetition_penalty", (0, -1, math.nan, math.inf, 1e-300, 1e300), (0.1, 3)),
        ("frequency_penalty", (-2.1, 2.1, math.nan), (-2, 2)),
        ("presence_penalty", (-2.1, 2.1, math.nan), (-2, 2)),
        ("max_new_tokens", (-1, 1.5, "3"), (0, None)),
        ("min_new_tokens", (-1, 2.5, None), (0, 3)),
        ("seed", (1 << 63, -(1 << 63) - 1, 1.5, "a", None), (-1, (1 << 63) - 1, -(1 << 63))),
        ("ignore_eos", ("no", 1, None), (True,)),
        ("detokenize", ("", 0, None), (False,)),
        ("stop", ("END", 5, [5], [b"x"]), (None, [], ["END"])),
        ("stop_token_ids", ("a", 5, ["a"], [1.5]), (None, [], [3])),
    ],
)
def test_sampling_ranges(name, bad, good):
    for value in bad:
        wanted = rf"^SamplingParams\.{name}: wanted .+, got {re.escape(repr(value))}$"
        with pytest.raises(ValueError, match=wanted):
            SamplingParams(**{name: value})
    for value in good:
        assert getattr(SamplingParams(**{name: value}), name) == value


def test_what_was_wanted_of_a_sampling_parameter_is_said():
    wanted = "SamplingParams.seed: wanted a signed integer of 64 bits, got 9223372036854775808"
    with pytest.raises(ValueError, match=f"^{wanted}$"):
        SamplingParams(seed=1 << 63)
    wanted = "SamplingParams.stop: wanted None or a list of texts, got 'END'"
    with pytest.raises(ValueError, match=f"^{wanted}$"):
        SamplingParams(stop="END")


def test_sampling_params_are_frozen():
    with pytest.raises(AttributeError):
        SamplingParams().top_k = 3


def test_the_user_wins_over_the_generation_config():
    merged = SamplingParams.from_input_and_generation_config(
        {"top_k": 7, "temperature": None},
        {"top_k": 5, "temperature": 0.6, "top_p": None, "bos_token_id": 1},
    )
    assert merged == SamplingParams(top_k=7, temperature=0.6)
    assert SamplingParams.from_input_and_generation_config() == SamplingParams()
    with pytest.raises(ValueError, match="got topk"):
        SamplingParams.from_input_and_generation_config({"topk": 3})


def test_speculative_state_counts_acceptance():
    state = SpecDecodingState()
    assert state.acceptance_rate == 0
    state.propose([4, 5, 6])
    with pytest.raises(TypeError) as error:
        state.propose([7, 1.7])
    assert str(error.value) == "SpecDecodingState.propose: wanted an integer, got 1.7"
    with pytest.raises(ValueError, match="wanted 0 to 3 accepted, got 4"):
        state.verify(4)
    assert state.verify(1) == [4]
    assert (state.draft_tokens, state.acceptance_rate) == ([], pytest.approx(1 / 3))
