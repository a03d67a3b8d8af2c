from rubricem_agent.policy.base import (
    TINY as TINY,
    TINY_SYSTEM as TINY_SYSTEM,
    Conversation as Conversation,
    Emission as Emission,
    Listener as Listener,
    Opening as Opening,
    Policy as Policy,
    TokenSegment as TokenSegment,
    model_folder as model_folder,
)
from rubricem_agent.policy.gemini import GeminiPolicy as GeminiPolicy
from rubricem_agent.policy.local import (
    LocalPolicy as LocalPolicy,
    load_model as load_model,
    load_tokenizer as load_tokenizer,
    policy_tokenizer as policy_tokenizer,
)
from rubricem_agent.policy.openai_compatible import OpenAICompatiblePolicy as OpenAICompatiblePolicy
from rubricem_agent.policy.scripted import ScriptedPolicy as ScriptedPolicy
from rubricem_agent.policy.tokens import (
    PolicyTokenizer as PolicyTokenizer,
    TokenConversation as TokenConversation,
    TokenTurn as TokenTurn,
)
from rubricem_agent.policy.vllm import ServedTokenPolicy as ServedTokenPolicy
from rubricem_agent.prompting import (
    AgentPrompt as AgentPrompt,
    agent_prompt as agent_prompt,
    read_agent_prompts as read_agent_prompts,
)
from rubricem_env.llm.http_failures import ContextOverflow as ContextOverflow
from rubricem_records.rollouts.sampling import Sampling as Sampling
