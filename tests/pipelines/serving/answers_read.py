"""How models write, and what readers find in their answers."""

from heddle.pipelines.serving.reading.forms import Style
from heddle.pipelines.serving.reading.pieces import Called

WEAVE = {
    "type": "object",
    "properties": {"kind": {"type": "string"}, "n": {"type": "integer"}, "at": {}},
}
EITHER = {
    "properties": {
        "a": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "b": {"type": ["string", "null"]},
        "c": {"type": ["string", "integer"]},
    }
}
FUNCTIONS = {"weave": WEAVE, "cut": {}, "either": EITHER, "odd": {"properties": ["a"]}}

THINKING = ("<think>", "</think>")
HERMES, LLAMA, MISTRAL, GLM, QWEN, DEEPSEEK, HARMONY = (
    Style(calls=name)
    for name in ("hermes", "llama", "mistral", "glm", "qwen-coder", "deepseek", "harmony")
)
QWEN3 = Style("hermes", THINKING)
CUT = Called("cut", "{}")


def deepseek(text):
    """A text with DeepSeek's own marks in its markers."""
    return text.replace("|", "\uff5c").replace("_", "\u2581")


def joined(pieces):
    """The pieces, of which neighbours of a kind are one."""
    found = []
    for piece in pieces:
        if found and type(piece) is type(found[-1]) and not isinstance(piece, Called):
            piece = type(piece)(found.pop().text + piece.text)
        found.append(piece)
    return found


def read(make, parts):
    reader = make()
    pieces = [piece for part in parts for piece in reader.push(part)]
    return joined([*pieces, *reader.push("", final=True)])


def weave(text):
    return Called("weave", text)


def check_cuts(style, prompt, text, wanted):
    """The same is found with the text in one piece, in two, and character by character."""

    def make():
        return style.reader(FUNCTIONS, prompt)

    assert read(make, [text]) == wanted
    reader = make()
    assert joined(reader.push(text, final=True)) == wanted
    if len(text) < 1000:
        assert read(make, text) == wanted
        for at in range(len(text)):
            assert read(make, [text[:at], text[at:]]) == wanted
