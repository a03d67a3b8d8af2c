# Everything goes into .venv in this clone. `make demo` and `make test` set up what they need; `make help` lists the rest.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
INSTALL := ci/install $(VENV) -c ci/lanes/test/lock.txt
# Two busy torch threads on shared cores crawl without the first; the others keep libraries off the network.
export OMP_WAIT_POLICY := PASSIVE
export OMP_NUM_THREADS ?= 1
export HF_HUB_OFFLINE := 1
export TOKENIZERS_PARALLELISM := false
# uv does not compile what it installs. Where this is set, each process of a test would compile torch again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help

# The slower checks: a folder each, with its recipe and the exact versions that it installs. A lane's own libraries may
# warn: those warnings are theirs, so they do not fail it.
LANE_PYTEST := -m pytest -o addopts="-q -rs -p no:cacheprovider --import-mode=importlib" -o filterwarnings=default
include $(wildcard ci/lanes/*/recipe.mk)

.PHONY: help demo test lint format bench lanes clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/' | column -t -s '|'

demo: $(VENV)/.installed-core  ## set up, then play an episode, train a policy offline and write the page of the run
	$(BIN)/rubricem demo
	$(BIN)/rubricem train demo_almanac
	$(BIN)/rubricem report runs/demo/training

test: $(VENV)/.installed-test  ## set up, then lint, type-check and test; COVERAGE=95 asks for 95 % of all lines too
	$(MAKE) --jobs 2 --no-print-directory other-tests lint core-tests
ifdef COVERAGE
	$(BIN)/python -m coverage combine --append --quiet .coverage-core
	$(BIN)/python -m coverage report --skip-covered --fail-under=$(COVERAGE)
endif

lint: $(VENV)/.installed-test  ## check form, spelling and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell rubricem_env rubricem_records rubricem_viewer rubricem_agent trainers research examples docs README.md
	$(BIN)/mypy

format: $(VENV)/.installed-test  ## rewrite the code in its form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed-test  ## measure, in minutes; beside TRL and veRL: make bench-trl, make bench-verl
	$(BIN)/python -m pytest tests/bench -p no:cacheprovider --benchmark-only --benchmark-disable-gc -q -s

lanes: $(LANES)  ## all slower checks below, each in an environment of its own

.DEFAULT:
	@echo "There is no target '$@'. These are:" >&2; $(MAKE) --no-print-directory help >&2; exit 2

clean:  ## remove the environments and what was built
	rm -rf $(VENV) .venv-* build dist .coverage* .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "RubricEM needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Name another: make PYTHON=/path/to/python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

# torch first and alone: asked for by another package it comes with gigabytes of CUDA.
$(VENV)/.installed-core: $(BIN)/python pyproject.toml ci/lanes/test/lock.txt
	$(INSTALL) torch==2.13.0
	$(INSTALL) -e '.[tools,local,viewer]'
	touch $@

$(VENV)/.installed-test: $(VENV)/.installed-core
	$(INSTALL) -e '.[tools,documents,sql,judge,bank,gguf,viewer,dev]'
	touch $@
