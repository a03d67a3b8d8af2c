"""What holds for every test: a property is true or false, however busy the machine is that asks."""

import signal
from importlib.util import find_spec

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that starts the tests in the background ignores it. Programs that tests interrupt would ignore it as well.
    signal.signal(signal.SIGINT, signal.default_int_handler)

if find_spec("hypothesis"):  # the lanes' environments have none
    from hypothesis import HealthCheck, settings

    settings.register_profile("rubricem", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("rubricem")

# The longest files, which begin first: at the end one process would wait for the other.
SLOW = (
    "test_docs.py",
    "test_killed.py",
    "test_own_questions.py",
    "test_planted_modules.py",
    "test_sft.py",
    "test_ssgrpo.py",
    "test_tiny_policy.py",
    "test_train.py",
)


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.path.name not in SLOW)
