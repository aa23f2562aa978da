"""What counts as a token, and what is left as it was where something does not."""

import numpy as np
import pytest

from heddle.contexts import EOSTracker, GenerationStatus


@pytest.mark.parametrize("constrained", [False, True])
def test_an_array_of_no_dimension_is_a_token(text, matcher, constrained):
    """As what indexing or iterating over an array of a device gives."""
    tracker = EOSTracker({9})

    def make():
        return text(eos_tracker=tracker, _matcher=matcher if constrained else None)

    context = make()
    context.update(np.array(5))
    context.jump_ahead(np.array(6))
    context.update_with_future_token()
    context.realize_future_token(np.array(9))
    assert context.tokens.generated.tolist() == [5, 6, 9]
    assert context.status is GenerationStatus.END_OF_SEQUENCE


@pytest.mark.parametrize("token", [1.5, None, "7", np.array([1, 2]), np.array(1.0)])
def test_what_is_no_token_changes_nothing(text, matcher, plain, token):
    for context in (text(), text(_matcher=matcher)):
        context.update_with_future_token()
        before = plain(context)
        with pytest.raises(TypeError, match="token: wanted an integer, got"):
            context.realize_future_token(token)
        assert plain(context) == before
        context.realize_future_token(5)
        before = plain(context)
        for take in (context.update, context.jump_ahead, context.advance_token_buffer):
            with pytest.raises(TypeError, match="token: wanted an integer, got"):
                take(token)
        assert plain(context) == before
        matcher.consumed.clear()
