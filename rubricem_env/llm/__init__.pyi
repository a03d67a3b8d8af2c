from rubricem_env.llm.base import (
    ChatModel as ChatModel,
    ChatReply as ChatReply,
    ChatRequest as ChatRequest,
    MeteredModel as MeteredModel,
    ModelPool as ModelPool,
)
from rubricem_env.llm.gemini import GeminiModel as GeminiModel
from rubricem_env.llm.limits import Rates as Rates, RetryPolicy as RetryPolicy, Timing as Timing
from rubricem_env.llm.openai_compatible import OpenAICompatibleModel as OpenAICompatibleModel
from rubricem_env.llm.tracing import export_traces as export_traces
from rubricem_env.llm.usage import Meter as Meter, Price as Price, Usage as Usage
