# ruff: noqa
from typing import Annotated, Any

from openai.types.chat.chat_completion import Choice as Choice
from pydantic import SkipValidation

ChatCompletionMessageParam = dict[str, Any]
ChatCompletionToolParam = dict[str, Any]

Message = Annotated[ChatCompletionMessageParam, SkipValidation]
MessageOrChoice = Message | Choice
Messages = list[Message]
MessagesAndChoices = list[MessageOrChoice]
Tools = list[ChatCompletionToolParam]
