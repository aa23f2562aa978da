import pytest

from heddle.contexts import (
    AudioGenerator,
    EmbeddingsGenerator,
    InputContext,
    PipelineTokenizer,
    TokenGenerator,
)


class Tokenizer:
    expects_content_wrapping = False

    @property
    def eos(self):
        raise RuntimeError("not loaded yet")

    async def new_context(self, request): ...

    async def encode(self, prompt, add_special_tokens): ...

    async def decode(self, context, encoded, **kwargs): ...


class Generator:
    decoder_sample_rate = 24000

    def next_token(self, batch, num_steps): ...

    def next_chunk(self, batch, num_tokens): ...

    def encode(self, batch): ...

    def release(self, context): ...


def test_members_decide_and_no_property_runs(text):
    assert isinstance(Tokenizer(), PipelineTokenizer)
    assert isinstance(text(), InputContext)
    for protocol in (TokenGenerator, AudioGenerator, EmbeddingsGenerator):
        assert isinstance(Generator(), protocol)


@pytest.mark.parametrize(
    "protocol",
    [AudioGenerator, EmbeddingsGenerator, InputContext, PipelineTokenizer, TokenGenerator],
)
def test_a_missing_member_decides_too(protocol):
    assert not isinstance(object(), protocol)
    assert not isinstance(3, protocol)


def test_an_implementation_is_its_own_type():
    class Mine(TokenGenerator):
        pass

    assert isinstance(Mine(), Mine)
    assert isinstance(Mine(), TokenGenerator)
    assert not isinstance(Generator(), Mine)
