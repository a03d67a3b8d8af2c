# Everything goes into .venv in this clone. `make demo` and `make test` set up what they need.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
INSTALL := .ci/install $(VENV) -c constraints.txt
# Two busy torch threads on shared cores crawl without the first; the others keep libraries off the network.
export OMP_WAIT_POLICY := PASSIVE
export OMP_NUM_THREADS ?= 1
export HF_HUB_OFFLINE := 1
export TOKENIZERS_PARALLELISM := false
# uv does not compile what it installs. Where this is set, each process of a test would compile torch again.
unexport PYTHONDONTWRITEBYTECODE

# What everything else stands on is covered whole, by its own tests, in one process. Other processes cover nothing here.
CORE := rubricem_env/domain/*,rubricem_env/scaffold/*,rubricem_agent/learn/credit.py,rubricem_agent/learn/credit_methods.py
CORE_TESTS := tests/rubricem_env/domain tests/rubricem_env/scaffold $(filter-out %/test_planted_modules.py,$(wildcard tests/redteam/test_*.py)) tests/rubricem_agent/learn/test_credit.py tests/rubricem_agent/learn/test_credit_methods.py

LANES := fuzz-lane kill-lane mcp-lane docs-lane cluster-lane python-lane wheel-lane browser-lane verl-lane adapters vllm-lane verl-vllm-lane verl-edges-lane

.PHONY: help demo test core-tests other-tests bench lint format clean lanes fuzz-lane kill-lane

help:
	@echo "make demo    set up, then play an episode, train a policy offline and write the page of the run"
	@echo "make test    set up, then lint, type-check and test"
	@echo "make bench   set up, then measure (minutes); beside TRL and veRL: make bench-trl, make bench-verl"
	@echo "make lanes   the slower checks, each in an environment of its own: $(LANES)"
	@echo "make gpu-lane  what one GPU can show in nine minutes; make gpu-arena: the credit methods, in half an hour;"
	@echo "               make gpu-rehearsal: both on the CPU at a tiny size"
	@echo "make docs-lane  the documents as a site, in build/site"
	@echo "make lint    check the form of the code alone"
	@echo "make format  rewrite the code in its form"

demo: $(VENV)/.installed-core
	$(BIN)/rubricem demo
	$(BIN)/rubricem train demo_almanac
	$(BIN)/rubricem report runs/demo/training

# What most tests do is wait, so four processes for the rest and one for the core keep two cores busy. The rest begins
# first: its modules are imported while the types are checked. macOS cannot fork what has imported torch.
PROCESSES := $(if $(filter Darwin,$(shell uname)),-n 2 --dist loadfile --no-loadscope-reorder,-p tests.forked --forks 4)

# What is printed may mix, so that the dots appear while the tests run. No test runs twice.
test: $(VENV)/.installed-test
	$(MAKE) --jobs 2 --no-print-directory other-tests lint core-tests
	$(BIN)/python -m coverage combine --append --quiet .coverage-core
	$(BIN)/python -m coverage report --skip-covered --fail-under=95

core-tests: export COVERAGE_FILE := .coverage-core
core-tests: $(VENV)/.installed-test
	$(BIN)/python -m pytest $(CORE_TESTS) --cov --cov-report=
	$(BIN)/python -m coverage report --include='$(CORE)' --fail-under=100

other-tests: $(VENV)/.installed-test
	$(BIN)/python -m pytest $(PROCESSES) --cov --cov-report= $(addprefix --ignore=,$(CORE_TESTS))

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell rubricem_env rubricem_agent docs README.md
	$(BIN)/mypy

format: $(VENV)/.installed-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed-test
	$(BIN)/python -m pytest tests/bench -p no:cacheprovider --benchmark-only --benchmark-disable-gc -q -s

lanes: $(LANES)

# Random attacks with a new seed, and training and evaluation killed at random moments: docs/security.md.
fuzz-lane: $(VENV)/.installed-test
	timeout --kill-after=10s 280 $(BIN)/python -m tests.lanes.fuzz.fuzz

kill-lane: $(VENV)/.installed-test
	timeout --kill-after=10s 1200 $(BIN)/python -m tests.lanes.fuzz.kill

include Makefile.python Makefile.wheel Makefile.mcp Makefile.docs Makefile.cluster Makefile.browser Makefile.verl Makefile.adapters Makefile.vllm Makefile.gpu

clean:
	rm -rf $(VENV) .venv-* build dist .coverage .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "RubricEM needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Name another: make PYTHON=/path/to/python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

# torch first and alone: asked for by another package it comes with gigabytes of CUDA.
$(VENV)/.installed-core: $(BIN)/python pyproject.toml constraints.txt
	$(INSTALL) torch==2.13.0
	$(INSTALL) -e '.[tools,local,viewer]'
	touch $@

$(VENV)/.installed-test: $(VENV)/.installed-core
	$(INSTALL) -e '.[tools,documents,judge,bank,local,viewer,dev]'
	touch $@
