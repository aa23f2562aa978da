"""Folders with a tokenizer, and files that say more of it."""

import json


def changed(folder, decoder, **files):
    """A copy of the tokenizer with other files beside it."""
    (folder / "tokenizer.json").write_bytes((decoder / "tokenizer.json").read_bytes())
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    return folder
