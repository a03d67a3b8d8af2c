"""The lane runs in an environment of its own, which has veRL and vLLM; elsewhere its tests are skipped."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("verl") and find_spec("vllm") else ["test_*.py"]
