"""Servers of the tiny decoder."""

import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from heddle.pipelines.generation.generator import TextGenerator
from heddle.pipelines.generation.tokenizer import TextTokenizer

sys.path.insert(0, str(Path(__file__).parent))
from served import Running


@pytest.fixture(scope="module")
def server(decoder, decoder_model):
    """A server of the tiny decoder."""
    generator = TextGenerator(decoder_model, TextTokenizer(decoder))
    running = Running({"tiny": generator})
    yield running
    running.stop()


@pytest.fixture
def make_server():
    """Makes servers, which stop at the end of a test."""
    with ExitStack() as stack:

        def make(models, **options):
            running = Running(models, **options)
            stack.callback(running.stop)
            return running

        yield make
