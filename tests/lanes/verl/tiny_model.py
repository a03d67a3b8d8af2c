"""A Qwen3 of random weights that reads whole almanac prompts, with as many ids as its tokenizer has."""

from pathlib import Path

from rubricem_agent.prompting.agent_prompt import AgentPrompt
from rubricem_env.env.offline import offline_queries
from rubricem_env.testing.tiny_qwen3 import tiny_qwen3, tiny_tokenizer


def write_policy(folder: Path) -> Path:
    """Save it as transformers does. Twice the ids were masked by veRL where the model had more than the tokenizer."""
    prompt = AgentPrompt("Search, then answer.", "")
    tokenizer = tiny_tokenizer([prompt.opening(query).user for query in offline_queries()], vocab_size=1_024)
    model = tiny_qwen3(len(tokenizer))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
