"""The names of `heddle.contexts` for type checkers; they are loaded when asked for."""

from heddle.contexts.batch import StepBatch as StepBatch
from heddle.contexts.cache_blocks import CacheBlocks as CacheBlocks
from heddle.contexts.eos import EOSTracker as EOSTracker
from heddle.contexts.grammar import GrammarCompiler as GrammarCompiler
from heddle.contexts.grammar import GrammarLimits as GrammarLimits
from heddle.contexts.grammar import grammar_tokenizer as grammar_tokenizer
from heddle.contexts.grammar import jump_ahead_forced as jump_ahead_forced
from heddle.contexts.grammar_masks import GrammarMasks as GrammarMasks
from heddle.contexts.matcher import Matcher as Matcher
from heddle.contexts.messages import TokenGeneratorRequestFunction as TokenGeneratorRequestFunction
from heddle.contexts.messages import TokenGeneratorRequestMessage as TokenGeneratorRequestMessage
from heddle.contexts.messages import TokenGeneratorRequestTool as TokenGeneratorRequestTool
from heddle.contexts.messages import TokenGeneratorResponseFormat as TokenGeneratorResponseFormat
from heddle.contexts.outputs import GenerationOutput as GenerationOutput
from heddle.contexts.outputs import OutputImageContent as OutputImageContent
from heddle.contexts.outputs import TextGenerationOutput as TextGenerationOutput
from heddle.contexts.pixel import PixelContext as PixelContext
from heddle.contexts.protocols import AudioGenerator as AudioGenerator
from heddle.contexts.protocols import EmbeddingsGenerator as EmbeddingsGenerator
from heddle.contexts.protocols import InputContext as InputContext
from heddle.contexts.protocols import PipelineTokenizer as PipelineTokenizer
from heddle.contexts.protocols import TokenGenerator as TokenGenerator
from heddle.contexts.ranges import Range as Range
from heddle.contexts.requests import AudioGenerationRequest as AudioGenerationRequest
from heddle.contexts.requests import TextGenerationRequest as TextGenerationRequest
from heddle.contexts.requests import TokenGeneratorRequest as TokenGeneratorRequest
from heddle.contexts.reservation import (
    reserve_token_space_for_batch as reserve_token_space_for_batch,
)
from heddle.contexts.responses import AudioGenerationResponse as AudioGenerationResponse
from heddle.contexts.responses import AudioGeneratorOutput as AudioGeneratorOutput
from heddle.contexts.responses import EmbeddingsResponse as EmbeddingsResponse
from heddle.contexts.responses import TextGenerationResponse as TextGenerationResponse
from heddle.contexts.responses import TextResponse as TextResponse
from heddle.contexts.sampling import SamplingParams as SamplingParams
from heddle.contexts.speculative import SpecDecodingState as SpecDecodingState
from heddle.contexts.tasks import PipelineTask as PipelineTask
from heddle.contexts.text import TextContext as TextContext
from heddle.contexts.text_and_vision import ImageMetadata as ImageMetadata
from heddle.contexts.text_and_vision import TextAndVisionContext as TextAndVisionContext
from heddle.contexts.tokens import FUTURE_TOKEN as FUTURE_TOKEN
from heddle.contexts.tokens import TokenBuffer as TokenBuffer
from heddle.contexts.tts import TTSContext as TTSContext
from heddle.contexts.validators import validate_aspect_ratio_args as validate_aspect_ratio_args
from heddle.contexts.validators import validate_image_grid_thw_args as validate_image_grid_thw_args
from heddle.contexts.validators import validate_image_shape_5d as validate_image_shape_5d
from heddle.contexts.validators import (
    validate_initial_prompt_has_image as validate_initial_prompt_has_image,
)
from heddle.contexts.validators import validate_only_one_image as validate_only_one_image
from heddle.contexts.validators import (
    validate_requires_vision_context as validate_requires_vision_context,
)
from heddle.contexts.validators import validate_vision_position_ids as validate_vision_position_ids
from heddle.contexts.values import GenerationStatus as GenerationStatus
from heddle.contexts.values import LogProbabilities as LogProbabilities
from heddle.contexts.values import RequestID as RequestID
from heddle.contexts.values import TextGenerationStatus as TextGenerationStatus
from heddle.contexts.wire import msgpack_numpy_decoder as msgpack_numpy_decoder
from heddle.contexts.wire import msgpack_numpy_encoder as msgpack_numpy_encoder
from heddle.runtime.errors import InputError as InputError
