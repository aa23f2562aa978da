"""How texts are to be given to an embedder, as a folder that sentence-transformers wrote says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from heddle.pipelines.models.config_values import Values
from heddle.runtime.errors import InputError


@dataclass(frozen=True)
class Prompts:
    """What is put before texts, by the purpose that they are embedded for.

    Attributes:
        path: The file that says so, `config_sentence_transformers.json`.
        texts: Each by its name.
        default: The name of the one that is used where none is asked for, or None.
    """

    path: Path
    texts: Mapping[str, str]
    default: str | None

    @staticmethod
    def read(folder: Path) -> Prompts:
        """Those of a folder; a file that is not there has none.

        Raises:
            GraphError: The file says something else than is wanted.
        """
        path = folder / "config_sentence_transformers.json"
        values = Values.read_if_there(path)
        prompts = values.object("prompts")
        texts = {name: prompts.text(name, default="") for name in prompts.all()}
        default = values.get("default_prompt_name")
        if default is not None:
            values.choice("default_prompt_name", among=texts)
        return Prompts(path, texts, default)

    def choose(self, name: str | None) -> str:
        """The prompt of this name, or the default one, or "" where there is none.

        Raises:
            InputError: There is none of this name.
        """
        name = self.default if name is None else name
        if name is None:
            return ""
        if name not in self.texts:
            known = ", ".join(self.texts) or "no name, as there are no prompts"
            raise InputError(f"{self.path}: prompt: wanted {known}, got {name!r}")
        return self.texts[name]


@dataclass(frozen=True)
class Reading:
    """How a tokenizer is to read texts.

    Attributes:
        maximum: Tokens of a text that are looked at, special ones among them; the rest is cut off.
            None: nothing is said.
        lowercase: Whether texts are read in lower case, whatever the tokenizer does with them.
        truncation_side: Where the rest is cut off, "right" or "left"; None: as the tokenizer says.
    """

    maximum: int | None = None
    lowercase: bool = False
    truncation_side: str | None = None

    @staticmethod
    def read(folder: Path) -> Reading:
        """What the files of a folder say.

        Raises:
            GraphError: A file says something else than is wanted.
        """
        asked = Values.read_if_there(folder / "sentence_bert_config.json")
        tokenizer = Values.read_if_there(folder / "tokenizer_config.json")
        side = tokenizer.get("truncation_side")
        if side is not None:
            tokenizer.choice("truncation_side", among=("right", "left"))
        lowercase = asked.flag("do_lower_case", default=False)
        return Reading(_maximum(asked, tokenizer), lowercase, side)


UNSAID = Reading()
"""As the tokenizer and the model have it."""


def _maximum(asked: Values, tokenizer: Values) -> int | None:
    if asked.get("max_seq_length") is not None:
        return asked.count("max_seq_length")
    if tokenizer.get("model_max_length") is None:
        return None
    # Where it has no limit, transformers writes 1e30 as an integer or a float.
    return min(int(tokenizer.positive("model_max_length")), 1 << 30)


def read_dimensions(folder: Path) -> Sequence[int] | None:
    """What a model's embeddings may be cut to, as its configuration says; None: it says nothing.

    Its keys are those that vLLM reads: `matryoshka_dimensions`, and `is_matryoshka`.

    Raises:
        GraphError: The file says something else than numbers.
    """
    values = Values.read_if_there(folder / "config.json")
    listed = values.get("matryoshka_dimensions")
    if listed is None:
        return () if values.get("is_matryoshka") is False else None
    if not isinstance(listed, list) or not all(type(each) is int for each in listed):
        raise values.error("matryoshka_dimensions", "a list of integers", listed)
    return listed
