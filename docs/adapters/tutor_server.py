"""The tutor behind OpenAI's API: a model server on this machine, for libraries that ask one for every turn."""

import json
from collections import defaultdict, deque

from docs.adapters.tutor import ATTEMPTS, Tutor, tutored_questions
from rubricem_env.testing.model_servers import Answered, Asked, FakeOpenAI


class TutorAnswers:
    """Answers each conversation as one of the attempts; conversations are told apart by what was said in them."""

    def __init__(self) -> None:
        self._questions = tutored_questions()
        self._waiting: dict[tuple[str, ...], deque[int]] = defaultdict(deque)
        self._begun: dict[str, int] = defaultdict(int)

    def __call__(self, asked: Asked) -> Answered:
        """The next turn of the conversation, as a whole completion: some clients insist on every field."""
        said = [message["content"] for message in asked.body["messages"] if message["role"] == "assistant"]
        read = [message["content"] for message in asked.body["messages"] if message["role"] == "user"]
        question = read[0]
        if said:
            place = self._waiting[question, *said].popleft()
        else:
            place = self._begun[question] % len(ATTEMPTS)
            self._begun[question] += 1
        tutor = Tutor(self._questions[question], place)
        text = [tutor(observation) for observation in read][-1]
        self._waiting[question, *said, text].append(place)
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        body = {
            "id": f"tutor-{len(said)}",
            "object": "chat.completion",
            "created": 0,
            "model": asked.model,
            "choices": [choice],
            "usage": {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20},
        }
        return Answered(raw=json.dumps(body).encode())


def tutor_server() -> FakeOpenAI:
    """The app, for `serve_loopback`."""
    return FakeOpenAI(TutorAnswers())
