"""Keys are read once and shown never."""

import pytest
from pydantic import SecretStr

from rubricem_env.domain.errors import ConfigError
from rubricem_env.llm.keys import read_secret, redactor_of


def test_the_first_name_that_is_set_is_read_and_stripped() -> None:
    secret = read_secret({"A": " ", "B": " key-123456 \n"}, "A", "B", purpose="the judge")
    assert secret.get_secret_value() == "key-123456"
    with pytest.raises(ConfigError, match="the judge needs a key; set A or B"):
        read_secret({}, "A", "B", purpose="the judge")


@pytest.mark.parametrize("form", ["ca/na+ry 1", "ca%2Fna%2Bry%201", "ca%2Fna%2Bry+1"])
def test_every_form_of_a_known_secret_is_redacted(form: str) -> None:
    redactor = redactor_of([SecretStr("ca/na+ry 1")])
    assert redactor(f"GET /?key={form}&q=2") == "GET /?key=[redacted]&q=2"


def test_an_empty_secret_redacts_nothing() -> None:
    assert redactor_of([SecretStr("")])("plain") == "plain"
