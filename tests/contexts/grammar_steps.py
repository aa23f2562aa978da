"""The tokens of the tests of grammars, and steps that they share."""

# All bytes, a few longer tokens, and the end of sequence.
VOCABULARY = [bytes([i]) for i in range(256)] + [b'{"', b'":', b"true", b"12", b"[]", b'"}', b""]
END = len(VOCABULARY) - 1


def allowed(masks, row):
    return [token for token in range(END + 1) if masks.allows(row, token)]


def feed(context, text):
    for byte in text:
        context.update(byte)
