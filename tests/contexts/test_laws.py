"""Laws that hold in every state that a context can reach."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from heddle.contexts import (
    EOSTracker,
    GenerationStatus,
    LogProbabilities,
    SamplingParams,
    SpecDecodingState,
    TextAndVisionContext,
    TextContext,
    TokenBuffer,
    TTSContext,
    msgpack_numpy_decoder,
    msgpack_numpy_encoder,
)

# Token 0 ends a sequence, and so does the run 8, 9.
TOKENS = st.integers(0, 12)
PROMPTS = st.lists(TOKENS, min_size=1, max_size=12)
KINDS = {
    TextContext: {},
    TTSContext: {},
    TextAndVisionContext: {"vision_token_ids": [98]},
}


class AnyToken:
    """A matcher that takes every token and remembers it."""

    def __init__(self, consumed=()):
        self.consumed = list(consumed)

    def try_consume_tokens(self, tokens):
        self.consumed += tokens
        return len(tokens)

    def is_accepting(self):
        return True

    def is_stopped(self):
        return False

    def is_error(self):
        return False

    def rollback(self, count):
        del self.consumed[len(self.consumed) - count :]
        return True

    def deep_copy(self):
        return AnyToken(self.consumed)


def machine_test(plain):
    encode = msgpack_numpy_encoder()
    decode = msgpack_numpy_decoder(TextContext, copy=False)

    class Context(RuleBasedStateMachine):
        @initialize(
            prompt=PROMPTS,
            room=st.integers(0, 15),
            kind=st.sampled_from(list(KINDS)),
            ignore_eos=st.booleans(),
            constrained=st.booleans(),
        )
        def start(self, prompt, room, kind, ignore_eos, constrained):
            self.context = kind(
                max_length=len(prompt) + room,
                tokens=TokenBuffer(np.array(prompt)),
                eos_tracker=EOSTracker({0}, [[8, 9]], ["stop"]),
                ignore_eos=ignore_eos,
                sampling_params=SamplingParams(min_new_tokens=min(room, 2)),
                **KINDS[kind],
            )
            if constrained:
                self.context.set_matcher(AnyToken())
            self.tokens = list(prompt)
            self.prompt_length = len(prompt)
            self.handed = len(prompt)

        @property
        def chunked(self):
            return self.context.tokens.actively_chunked

        @property
        def waits(self):
            return self.context.tokens.awaits_token

        @invariant()
        def the_buffer_holds_what_was_put_in(self):
            buffer = self.context.tokens
            assert buffer.all.tolist() == self.tokens
            assert [*buffer.prompt, *buffer.generated] == self.tokens
            assert buffer.prompt_length == self.prompt_length

        @invariant()
        def the_window_is_inside(self):
            buffer = self.context.tokens
            start, offset = buffer.processed_length, buffer.processing_offset
            assert 0 <= start <= buffer.current_position + offset <= len(buffer)
            assert buffer.active.tolist() == self.tokens[start + offset :][: buffer.active_length]

        @invariant()
        def the_wire_keeps_everything(self):
            before, after = plain(self.context), plain(decode(encode(self.context)))
            for state in (before, after):
                del state[1]["_matcher"]
            assert after == before

        @invariant()
        def the_matcher_has_what_it_was_given(self):
            matcher = self.context.matcher
            if matcher is not None and not self.waits:
                start = len(self.tokens) - len(matcher.consumed)
                assert matcher.consumed == self.tokens[start:]

        @precondition(lambda self: not self.waits or self.chunked)
        @rule(token=TOKENS, forced=st.booleans(), entry=st.booleans())
        def update(self, token, forced, entry):
            added = not self.chunked
            if forced:
                self.context.jump_ahead(token)
            else:
                self.context.update(token, LogProbabilities([-1], [{}]) if entry else None)
            self.tokens += [token] * added

        @precondition(lambda self: not self.waits and not self.chunked)
        @rule()
        def update_with_future_token(self):
            self.context.update_with_future_token()
            self.tokens.append(-999)

        @precondition(lambda self: self.waits)
        @rule(token=TOKENS)
        def realize(self, token):
            self.context.realize_future_token(token)
            self.tokens[-1] = token

        @precondition(lambda self: self.context.tokens.active_length > 1)
        @rule(data=st.data())
        def chunk(self, data):
            active = self.context.tokens.active_length
            self.context.tokens.chunk(data.draw(st.integers(1, active - 1)))

        @rule(data=st.data())
        def move_the_window(self, data):
            buffer = self.context.tokens
            if buffer.active_length:
                buffer.skip_processing(data.draw(st.integers(0, buffer.active_length - 1)))
            buffer.rewind_processing(data.draw(st.integers(0, buffer.processed_length)))
            window = buffer.active_length + buffer.processing_offset
            self.context.apply_processing_offset(data.draw(st.integers(0, window)))

        @rule(data=st.data())
        def set_token_indices(self, data):
            context = self.context
            if context.active_idx and not context.tokens.processing_offset:
                start = data.draw(st.integers(0, context.active_idx - 1))
                context.set_token_indices(start_idx=start, committed_idx=start)

        @rule()
        def hand_out(self):
            end = len(self.tokens) - self.waits
            output = self.context.to_generation_output()
            assert output.tokens == self.tokens[self.handed : end]
            self.handed = max(self.handed, end)

        @rule(count=st.integers(0, 5))
        def rollback(self, count):
            count = min(count, len(self.tokens) - 1)
            self.context.rollback(count)
            self.tokens = self.tokens[: len(self.tokens) - count]
            self.prompt_length = min(self.prompt_length, len(self.tokens))
            self.handed = min(self.handed, len(self.tokens))

        @rule()
        def reset(self):
            if self.waits:
                self.tokens.pop()
            self.context.reset()
            self.prompt_length = self.handed = len(self.tokens)
            assert self.context.is_initial_prompt
            assert self.context.spec_decoding_state == SpecDecodingState()

        @precondition(lambda self: not self.waits and not self.chunked)
        @rule(tokens=st.lists(TOKENS, max_size=5), forced=st.booleans())
        def rollback_undoes_updates(self, tokens, forced):
            before = plain(self.context)
            for token in tokens:
                self.context.jump_ahead(token) if forced else self.context.update(token)
            self.context.rollback(len(tokens))
            assert plain(self.context) == before

        @precondition(lambda self: not self.waits and not self.chunked)
        @rule(token=TOKENS)
        def a_realized_future_token_is_an_update(self, token):
            snapshot = self.context.snapshot()
            self.context.update_with_future_token()
            self.context.realize_future_token(token)
            realized = plain(self.context)
            self.context.restore(snapshot)
            self.context.update(token)
            assert plain(self.context) == realized
            self.tokens.append(token)

        @rule(tokens=st.lists(TOKENS, max_size=4), status=st.sampled_from(GenerationStatus))
        def restore_undoes_everything(self, tokens, status):
            before, snapshot = plain(self.context), self.context.snapshot()
            for _ in range(2):
                for token in tokens:
                    if not self.waits:
                        self.context.update(token)
                self.context.spec_decoding_state.propose(tokens)
                self.context.eos_tracker.is_eos_from_string("sto")
                self.context.update_status(status)
                self.context.reset()
                self.context.restore(snapshot)
                assert plain(self.context) == before

    machine = Context.TestCase
    machine.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
    return machine


def test_laws_of_contexts(plain):
    machine_test(plain)().runTest()


@settings(deadline=None)
@given(PROMPTS, st.data())
def test_chunked_prefill_visits_each_prompt_token_once(prompt, data):
    context = TextContext(max_length=99, tokens=np.array(prompt))
    visited = []
    while context.is_initial_prompt:
        if context.tokens.active_length > 1 and data.draw(st.booleans()):
            context.tokens.chunk(data.draw(st.integers(1, context.tokens.active_length - 1)))
        visited += context.tokens.active.tolist()
        context.update(5)
    assert visited == prompt
    assert context.to_generation_output().tokens == [5]


@settings(deadline=None)
@given(
    st.text("ab", max_size=12),
    st.lists(st.text("ab", min_size=1, max_size=4), min_size=1),
    st.data(),
)
def test_a_stop_string_is_found_however_the_text_is_cut(text, stops, data):
    tracker = EOSTracker(eos_stop_strings=stops)
    found = None
    while text and found is None:
        size = data.draw(st.integers(1, len(text)))
        head, text = text[:size], text[size:]
        whole = tracker.tail + head
        found = tracker.is_eos_from_string(head)
        assert (found is not None) == any(stop in whole for stop in stops)
        if found is not None:
            first = min(whole.find(stop) for stop in stops if stop in whole)
            assert found == next(stop for stop in stops if whole.startswith(stop, first))


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 9), max_size=150), max_size=6), st.data())
def test_speech_tokens_are_decoded_once_each(blocks, data):
    context = TTSContext(max_length=9, tokens=np.array([1]))
    decoded = []
    for block in blocks:
        context.update_speech_tokens(np.array(block, dtype=np.int64))
        while context.has_undecoded_speech_tokens() and data.draw(st.booleans()):
            size = data.draw(st.integers(1, 99))
            tokens, before = context.next_speech_tokens(size, data.draw(st.integers(0, 9)))
            decoded += tokens[before:].tolist()
            context.set_decoded_index(context.decoded_index + len(tokens) - before)
    assert context.speech_tokens.tolist() == [token for block in blocks for token in block]
    assert decoded == context.speech_tokens[: context.decoded_index].tolist()
    assert context._speech_tokens.size % 128 == 0


@pytest.mark.parametrize("tokens", [[5, 8], [8], [5]])
def test_the_mask_forbids_exactly_what_would_end(tokens):
    tracker = EOSTracker({0}, [[8, 9], [5, 8, 7]])
    context = TextContext(
        max_length=99,
        tokens=np.array([1]),
        eos_tracker=tracker,
        sampling_params=SamplingParams(min_new_tokens=9),
    )
    for token in tokens:
        context.update(token)
    (mask,) = context.get_min_token_logit_mask(1)
    ends = [t for t in range(13) if tracker.is_eos_from_tokens([*tokens, t])]
    assert mask[:, 1].tolist() == ends
