# The two halves of `make test`, which run beside each other, and the lanes that need nothing but its environment.

# What everything else stands on is covered whole, by its own tests, in one process. Other processes cover nothing here.
CORE := rubricem_env/domain/*,rubricem_env/scaffold/*,rubricem_agent/learn/credit.py,rubricem_agent/learn/credit_methods.py
CORE_TESTS := tests/rubricem_env/domain tests/rubricem_env/scaffold $(filter-out %/test_planted_modules.py,$(wildcard tests/redteam/test_*.py)) tests/rubricem_agent/learn/test_credit.py tests/rubricem_agent/learn/test_credit_methods.py

# What most tests do is wait, so four processes for the rest and one for the core keep two cores busy. The rest begins
# first: its modules are imported while the types are checked. macOS cannot fork what has imported torch.
PROCESSES := $(if $(filter Darwin,$(shell uname)),-n 2 --dist loadfile --no-loadscope-reorder,-p tests.forked --forks 4)

.PHONY: core-tests other-tests example-lane fuzz-lane kill-lane

core-tests: export COVERAGE_FILE := .coverage-core
core-tests: $(VENV)/.installed-test
	$(BIN)/python -m pytest $(CORE_TESTS) --cov --cov-report=
	$(BIN)/python -m coverage report --include='$(CORE)' --fail-under=100

# Traced only where COVERAGE is set, as in CI: tracing takes half of a test's time again.
other-tests: $(VENV)/.installed-test
	$(BIN)/python -m pytest $(PROCESSES) $(if $(COVERAGE),--cov --cov-report=) $(addprefix --ignore=,$(CORE_TESTS))

LANES += example-lane fuzz-lane kill-lane
example-lane: $(VENV)/.installed-test  ## the algorithm in one file learns; who follows the page for contributors is green
	OMP_NUM_THREADS=2 timeout --kill-after=10s 400 $(BIN)/python -m pytest -q -p no:cacheprovider tests/lanes/example

fuzz-lane: $(VENV)/.installed-test  ## random attacks with a new seed
	timeout --kill-after=10s 280 $(BIN)/python -m tests.lanes.fuzz.fuzz

kill-lane: $(VENV)/.installed-test  ## training, evaluation, corpus build and bank writers, killed at random moments
	timeout --kill-after=10s 1800 $(BIN)/python -m tests.lanes.fuzz.kill
