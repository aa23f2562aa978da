"""Makes what writes GGUF files importable, and the tokenizer of these."""

import json
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def tokenizer(decoder):
    """The decoder's, with a merge, which each file has: of two zeros."""
    content = json.loads((decoder / "tokenizer.json").read_text())
    content["model"]["vocab"] |= {"<s>": 256, "</s>": 257, "\u0100\u0100": 258}
    content["model"]["merges"] = [["\u0100", "\u0100"]]
    return Tokenizer.from_str(json.dumps(content))
