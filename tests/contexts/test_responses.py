import numpy as np
import pytest

from heddle.contexts import (
    AudioGenerationResponse,
    AudioGeneratorOutput,
    EmbeddingsResponse,
    GenerationStatus,
    TextGenerationResponse,
    TextResponse,
)

END = GenerationStatus.END_OF_SEQUENCE


def test_text_responses_grow():
    response = TextGenerationResponse([], GenerationStatus.ACTIVE)
    response.append_token(TextResponse(5))
    response.update_status("end_of_sequence")
    assert (response.tokens, response.final_status, response.is_done) == (
        [TextResponse(5)],
        END,
        True,
    )


def test_audio_responses():
    with pytest.raises(ValueError, match="wanted audio, got none"):
        AudioGenerationResponse(END).audio_data  # noqa: B018
    audio = np.zeros(3, np.float32)
    response = AudioGenerationResponse(GenerationStatus.ACTIVE, audio)
    assert (response.has_audio_data, response.is_done) == (True, False)
    assert response.audio_data is audio
    assert not AudioGenerationResponse(END).has_audio_data
    assert AudioGeneratorOutput(audio, {"rate": 1}, True).is_done


def test_embeddings_are_floats():
    assert EmbeddingsResponse(np.zeros((2, 3), np.float16)).embeddings.shape == (2, 3)
    with pytest.raises(ValueError, match="wanted floats, got int64"):
        EmbeddingsResponse(np.zeros(3, np.int64))
