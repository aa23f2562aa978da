import pytest

from heddle.contexts import (
    AudioGenerationRequest,
    PipelineTask,
    SamplingParams,
    TextGenerationRequest,
    TokenGeneratorRequest,
    TokenGeneratorRequestFunction,
    TokenGeneratorRequestMessage,
    TokenGeneratorRequestTool,
    TokenGeneratorResponseFormat,
)

Message = TokenGeneratorRequestMessage
PICTURE = {"type": "image_url", "image_url": {"url": "x"}}


def test_tasks():
    assert [task.value for task in PipelineTask] == [
        "text_generation",
        "embeddings_generation",
        "audio_generation",
        "speech_token_generation",
        "pixel_generation",
    ]


def test_a_text_request_has_the_documented_defaults():
    request = TokenGeneratorRequest("r", 0, "m", prompt="hi")
    assert TokenGeneratorRequest is TextGenerationRequest
    assert (request.request_id, request.request_path, request.logprobs) == ("r", "/", 0)
    assert request.sampling_params == SamplingParams()
    assert TextGenerationRequest("r", 0, "m", prompt=[1, 2]).prompt == [1, 2]
    assert TextGenerationRequest("r", 0, "m", prompt="").messages is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"prompt": None}, "wanted prompt or messages, got neither"),
        ({"messages": [Message("user", "x")]}, "wanted prompt or messages, got both"),
        ({"id": ""}, "wanted an id"),
        ({"index": -1}, "wanted an index of at least 0, got -1"),
        ({"logprobs": -1}, "wanted logprobs as an integer of at least 0, got -1"),
        ({"logprobs": 1.5}, "wanted logprobs as an integer of at least 0, got 1.5"),
        ({"stop": 5}, "wanted stop as a text or a list of texts, got 5"),
        ({"stop": ["a", 5]}, r"wanted stop as a text or a list of texts, got \['a', 5\]"),
    ],
)
def test_bad_text_requests(change, reason):
    with pytest.raises(ValueError, match=reason):
        TextGenerationRequest(
            **({"id": "r", "index": 0, "model_name": "m", "prompt": "x"} | change)
        )


def test_images_are_as_many_as_the_messages_name():
    messages = [
        Message("user", [PICTURE, {"type": "image"}, {"type": "text", "text": "what?"}]),
        Message("assistant", [{"type": "text", "content": "a cat"}]),
    ]
    assert TextGenerationRequest("r", 0, "m", messages=messages, images=[b"1", b"2"]).images
    for images in (None, [b"1"], [b"1", b"2", b"3"]):
        with pytest.raises(ValueError, match=f"wanted 2 images, .*, got {len(images or ())}"):
            TextGenerationRequest("r", 0, "m", messages=messages, images=images)


def test_dicts_become_records():
    function = {"name": "f", "description": "does", "parameters": {}}
    request = TextGenerationRequest(
        "r",
        0,
        "m",
        messages=[{"role": "user", "content": "x"}],
        tools=[{"type": "function", "function": function}],
        response_format={"type": "json_object"},
    )
    assert request.messages == [Message("user", "x")]
    assert request.tools[0].function == TokenGeneratorRequestFunction(**function)
    assert request.response_format == TokenGeneratorResponseFormat("json_object")
    for message in ({"role": "user"}, {"role": "user", "content": "x", "name": "y"}, 3):
        with pytest.raises(ValueError, match="wanted its fields as items, got"):
            TextGenerationRequest("r", 0, "m", messages=[message])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ([{"type": "video"}], "got 'video'"),
        ([{}], "got None"),
        ([{"type": "text"}], r"with 'text' or 'content', got \['type'\]"),
        ([{"type": "image_url"}], r"with 'image_url', got \['type'\]"),
    ],
)
def test_unknown_content_parts(content, reason):
    with pytest.raises(ValueError, match=reason):
        Message("user", content)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "message: wanted content as a text or a list of parts, got None"),
        ({"type": "text"}, "message: wanted content as a text or a list of parts, got {'type': "),
        (["hi"], "message: wanted parts as dicts with a 'type', got 'hi'"),
        ([None], "message: wanted parts as dicts with a 'type', got None"),
    ],
)
def test_what_is_no_content(content, reason):
    with pytest.raises(ValueError, match=f"^{reason}"):
        TextGenerationRequest("a", 0, "m", messages=[{"role": "user", "content": content}])


def test_messages_of_tools():
    calls = [{"type": "function", "function": {"name": "f", "arguments": {}}}]
    called = Message("assistant", None, tool_calls=calls)
    answer = Message("tool", "42", tool_call_id="c")
    request = TextGenerationRequest("r", 0, "m", messages=[called, answer])
    assert [message.image_count for message in request.messages] == [0, 0]
    for nothing in (None, []):
        with pytest.raises(ValueError, match="message: wanted content as a text or a list of part"):
            Message("assistant", None, tool_calls=nothing)


def test_roles_tools_and_formats():
    with pytest.raises(ValueError, match="got 'robot'"):
        Message("robot", "x")
    with pytest.raises(ValueError, match="wanted a name"):
        TokenGeneratorRequestFunction("")
    function = TokenGeneratorRequestFunction("f", "does", {"type": "object"})
    with pytest.raises(ValueError, match="got 'thing'"):
        TokenGeneratorRequestTool("thing", function)
    tool = TokenGeneratorRequestTool("function", function)
    assert tool["function"]["name"] == tool.function.name == "f"
    with pytest.raises(KeyError):
        tool["other"]
    with pytest.raises(ValueError, match="got 'xml'"):
        TokenGeneratorResponseFormat("xml")
    assert TokenGeneratorResponseFormat("json_schema", {"type": "object"}).json_schema


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"input": None}, "wanted prompt or input, got neither"),
        ({"input": "x" * 4097}, "at most 4096 characters, got 4097"),
        ({"id": ""}, "wanted an id"),
        ({"index": -2}, "got -2"),
    ],
)
def test_bad_audio_requests(change, reason):
    with pytest.raises(ValueError, match=reason):
        AudioGenerationRequest(**({"id": "r", "index": 0, "model": "m", "input": "x"} | change))


def test_audio_requests():
    assert AudioGenerationRequest("r", 0, "m", "x" * 4096).audio_prompt_tokens == []
    assert AudioGenerationRequest("r", 0, "m", prompt=[1]).audio_prompt_transcription == ""


@pytest.mark.parametrize(
    ("items", "got"),
    [
        ({"type": "json_schema"}, "wanted json_schema with the schema, got none"),
        ({"type": "json_schema", "json_schema": {}}, "wanted json_schema with the schema"),
        ({"type": "json_schema", "json_schema": "{}"}, "wanted json_schema as a dict, .* got '{}'"),
        (
            {"type": "json_schema", "json_schema": None},
            "wanted json_schema with the schema, got none",
        ),
        ({"type": "json_schema", "json_schema": [1]}, "wanted json_schema as a dict, .* got .1."),
    ],
)
def test_a_response_format_has_its_schema_as_a_dict(items, got):
    with pytest.raises(ValueError, match=f"^response format: {got}"):
        TextGenerationRequest("a", 0, "", "x", response_format=items)
    assert TokenGeneratorResponseFormat("json_object").json_schema == {}


@pytest.mark.parametrize("type", ["text", "json_object"])
def test_null_is_no_schema(type):
    items = {"type": type, "json_schema": None}
    asked = TextGenerationRequest("a", 0, "", "x", response_format=items)
    assert asked.response_format == TokenGeneratorResponseFormat(type)
