"""Requests, and what a generator makes of them."""

from heddle.contexts import SamplingParams, TextGenerationRequest

PROMPTS = (
    "Warp",
    "A longer prompt that fills several blocks of the cache, and then some.",
    "x",
    "one two three four five",
    "A longer prompt that fills several blocks of the cache, and another end.",
)

DRAWN = {"temperature": 1.0, "top_k": -1, "seed": 3}


def request(prompt="Warp", number=0, params=None, **options):
    params = SamplingParams(**{"max_new_tokens": 24, **(params or {})})
    if "messages" not in options:
        options["prompt"] = prompt
    return TextGenerationRequest(
        id=f"r{number}", index=number, model_name="", sampling_params=params, **options
    )


def run(generator, requests):
    """Texts, tokens and reasons of all of them, by id."""
    found = {generator.submit(each): ["", [], None] for each in requests}
    while generator.busy:
        for delta in generator.step():
            row = found[delta.request_id]
            assert row[2] is None
            assert delta.error is None
            row[0] += delta.text
            row[1] += delta.tokens
            row[2] = delta.finish_reason
    assert generator._step.blocks.free == generator._step.blocks.count
    return list(found.values())
