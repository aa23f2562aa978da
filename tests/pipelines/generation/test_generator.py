"""Requests through a tiny decoder: together, alone, in chunks, and constrained."""

import json
import math

import numpy as np
import pytest
from asked import DRAWN, PROMPTS, request, run

from heddle.contexts import SamplingParams
from heddle.pipelines.generation.places import log_probabilities
from heddle.runtime.errors import InputError


@pytest.mark.parametrize(
    "params",
    [
        {},
        DRAWN,
        {**DRAWN, "top_p": 0.9, "min_p": 0.01, "repetition_penalty": 1.2, "min_new_tokens": 20},
        {**DRAWN, "frequency_penalty": 0.5, "presence_penalty": -0.5},
    ],
)
def test_a_text_is_its_own_whatever_else_runs(make_generator, params):
    """Alone, in a batch, in chunks, with a cache so small that requests wait and start over."""
    requests = [request(prompt, number, params) for number, prompt in enumerate(PROMPTS)]
    together = run(make_generator(), requests)
    alone = make_generator()
    assert [run(alone, [each])[0] for each in requests] == together
    assert run(make_generator(rows=3, tokens=7, cache_tokens=112), requests) == together
    assert {len(tokens) for _, tokens, _ in together} <= set(range(25))
    if not params:
        assert together[0] != together[1]


@pytest.mark.parametrize("speculate", [0, 3])
def test_arrays_of_a_gpu_are_read_on_the_stream_of_the_step(make_generator, speculate):
    """CuPy picks rows and copies to the host on its current stream, whatever that waits for."""

    class Stream:
        entered = 0

        def __enter__(self):
            self.entered += 1

        def __exit__(self, *error):
            self.entered -= 1

    class Placed:
        def __init__(self, array):
            self.array = array

        def __getitem__(self, part):
            # A slice is a view; rows by their numbers are a copy.
            assert stream.entered or isinstance(part, slice | int)
            return Placed(self.array[part])

        def get(self):
            assert stream.entered
            return self.array

    class Model:
        def execute(self, *inputs, out, stream):
            plain = [
                [each.array if isinstance(each, Placed) else each for each in some]
                for some in (inputs, out)
            ]
            return model.execute(*plain[0], out=plain[1])

    wanted = run(make_generator(rows=3, tokens=7), [request(p, n) for n, p in enumerate(PROMPTS)])
    generator, stream = make_generator(rows=3, tokens=7, speculate=speculate), Stream()
    step, model = generator._step, generator._step._model
    step._model, step._batch.stream = Model(), stream
    step._results = {name: Placed(array) for name, array in step._results.items()}
    for memory in (step._batch._step, step._batch._kept):
        memory.arrays = {name: Placed(array) for name, array in memory.arrays.items()}
    got = run(generator, [request(p, n) for n, p in enumerate(PROMPTS)])
    assert got == wanted


def test_texts_of_prompts(make_generator):
    generator = make_generator()
    texts = generator.generate(PROMPTS[:2], SamplingParams(max_new_tokens=24))
    assert texts == [
        row[0] for row in run(make_generator(), [request(p, i) for i, p in enumerate(PROMPTS[:2])])
    ]
    tokens = generator.tokenizer.encode(PROMPTS[0])
    assert generator.generate([tokens], SamplingParams(max_new_tokens=24)) == texts[:1]


def test_seeds(make_generator):
    params = [{**DRAWN, "seed": seed} for seed in (1, 2, 1)]
    first, second, again = run(
        make_generator(), [request(number=i, params=p) for i, p in enumerate(params)]
    )
    assert first == again
    assert first != second


def test_a_known_beginning_is_not_computed_again(make_generator, monkeypatch):
    generator = make_generator()
    processed = []
    write = generator._step._batch.write

    def counted(contexts, drafts):
        processed.append(sum(context.tokens.active_length for context in contexts))
        return write(contexts, drafts)

    monkeypatch.setattr(generator._step._batch, "write", counted)
    (first,) = run(generator, [request(PROMPTS[1])])
    assert processed[0] == len(PROMPTS[1])
    processed.clear()
    assert run(generator, [request(PROMPTS[1])]) == [first]
    assert processed[0] == len(PROMPTS[1]) % 16


def test_json_and_regular_expressions(make_generator):
    generator = make_generator()
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer", "maximum": 99}, "b": {"enum": ["x", "y"]}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": schema}
    params = {**DRAWN, "max_new_tokens": 200}
    plain = request(number=1, params=DRAWN)
    constrained = request(params=params, response_format=form)
    (text, _, reason), other = run(generator, [constrained, plain])
    assert reason == "stop"
    assert json.loads(text).keys() == {"a", "b"}
    assert other == run(make_generator(), [plain])[0]
    ((text, _, _),) = run(
        generator, [request(params=params, response_format={"type": "json_object"})]
    )
    assert text.lstrip().startswith("{")
    found = list(generator.stream(request(params=params), regex="(ab|cd){3}[0-9]{4}"))
    assert len("".join(delta.text for delta in found)) == 10
    assert found[-1].finish_reason == "stop"


@pytest.mark.parametrize(
    ("regex", "least", "text"), [("[a-c]{4}", 20, 4), ("[a-c]{2,8}", 8, 8), ("[a-c]{2,8}", 20, 8)]
)
def test_a_grammar_comes_before_the_least_number_of_tokens(make_generator, regex, least, text):
    params = {**DRAWN, "min_new_tokens": least}
    found = list(make_generator().stream(request(params=params), regex=regex))
    assert [delta.error for delta in found if delta.error] == []
    assert len("".join(delta.text for delta in found)) == text
    assert found[-1].finish_reason == "stop"


def test_tokens_without_text(make_generator):
    ((text, tokens, _),) = run(make_generator(), [request(params=DRAWN)])
    stop = text[5:8]
    bare = {**DRAWN, "detokenize": False}
    assert run(make_generator(), [request(params=bare)]) == [["", tokens, "length"]]
    ((shown, fewer, reason),) = run(make_generator(), [request(params=bare, stop=stop)])
    assert (shown, fewer, reason) == ("", tokens[: len(fewer)], "stop")
    assert len(fewer) < len(tokens)


def test_log_probabilities(make_generator):
    generator = make_generator()
    deltas = list(generator.stream(request(logprobs=3)))
    for delta in deltas:
        (token,), (entry,) = delta.tokens, delta.log_probabilities
        (top,) = entry.top_log_probabilities
        assert len(top) == 3
        assert next(iter(top)) == token  # the likeliest one was taken
        assert list(top.values()) == sorted(top.values(), reverse=True)
        assert entry.token_log_probabilities == [top[token]]
    logits = np.log(np.array([0.5, 0.2, 0.3], np.float32))
    entry = log_probabilities(logits, 1, 7)
    assert math.isclose(entry.token_log_probabilities[0], math.log(0.2), rel_tol=1e-6)
    assert list(entry.top_log_probabilities[0]) == [0, 2, 1]


def test_messages(make_generator):
    generator = make_generator()
    asked = request(messages=[{"role": "user", "content": "Hi"}])
    generator.submit(asked)
    generator.submit(request(number=1, params={"max_new_tokens": 0}))
    lengths = {delta.request_id: delta.prompt_tokens for delta in generator.step()}
    assert lengths == {"r0": len("<user>Hi") + 1, "r1": len("Warp")}


def test_cancel(make_generator):
    generator = make_generator(rows=1)
    running, waiting = generator.submit(request()), generator.submit(request(number=1))
    generator.step()
    generator.cancel(running)
    generator.cancel(waiting)
    found = {delta.request_id: delta.finish_reason for delta in generator.step()}
    assert found == {running: "cancelled", waiting: "cancelled"}
    assert not generator.busy
    assert generator.step() == []


def test_one_that_cannot_go_on_leaves_the_others(make_generator, monkeypatch):
    """A model that finds no token for a row says so of that row."""
    generator = make_generator()
    commit = generator._step._batch.commit

    def broken(contexts, tokens, entries):
        return commit(contexts, np.where(np.arange(len(tokens)) == 1, -1, tokens), entries)

    monkeypatch.setattr(generator._step._batch, "commit", broken)
    for number in range(2):
        generator.submit(request(number=number))
    good, bad = generator.step()
    assert (good.finish_reason, bad.finish_reason) == (None, "error")
    assert "wanted a token for row 1, got -1" in str(bad.error)
    generator.cancel("r0")
    generator.step()
    with pytest.raises(InputError, match="wanted a token for row 1"):
        generator.generate(["a", "b"])
    assert not generator.busy


def test_a_stream_keeps_what_is_new_of_others(make_generator):
    generator = make_generator()
    other = generator.submit(request(number=1))
    streamed = list(generator.stream(request()))
    assert {delta.request_id for delta in streamed} == {"r0"}
    tokens = []
    while generator.busy:
        tokens += [token for delta in generator.step() for token in delta.tokens]
    assert tokens == run(make_generator(), [request(number=1)])[0][1]
    assert other == "r1"


def test_a_stream_that_is_closed_early_is_cancelled(make_generator):
    generator = make_generator()
    stream = generator.stream(request())
    assert next(stream).tokens
    stream.close()
    assert not generator.busy
    assert generator._step.blocks.free == generator._step.blocks.count
    assert generator.step() == []
