"""How responses are written."""

import json

from heddle.pipelines.serving.responses import in_json


def test_texts_are_in_utf_8_where_they_can_be():
    assert in_json({"a": ["é", 1.5, None]}) == '{"a":["é",1.5,null]}'.encode()
    assert json.loads(in_json({"a": "\ud800é"})) == {"a": "\ud800é"}
