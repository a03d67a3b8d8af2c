from rubricem_env.llm.chat import ChatModel as ChatModel, ChatReply as ChatReply, ChatRequest as ChatRequest
from rubricem_env.llm.gemini import GeminiModel as GeminiModel
from rubricem_env.llm.limits.limiter import Rates as Rates
from rubricem_env.llm.limits.pool import ModelPool as ModelPool
from rubricem_env.llm.limits.retry import RetryPolicy as RetryPolicy
from rubricem_env.llm.limits.timing import Timing as Timing
from rubricem_env.llm.metered import MeteredModel as MeteredModel
from rubricem_env.llm.openai_compatible import OpenAICompatibleModel as OpenAICompatibleModel
from rubricem_env.llm.prices import Price as Price
from rubricem_env.llm.tracing import export_traces as export_traces
from rubricem_env.llm.usage import Meter as Meter, Usage as Usage
