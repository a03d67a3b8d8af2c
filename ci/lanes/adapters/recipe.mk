# One environment and one target for each RL library; `make adapters` runs them all.

ADAPTERS := adapter-trl adapter-verifiers adapter-openenv adapter-skyrl adapter-gem

.PHONY: adapters adapter-recipes adapter-inspect adapter-openreward bench-adapters bench-trl $(ADAPTERS)

LANES += adapters
adapters: $(ADAPTERS) adapter-inspect adapter-openreward adapter-recipes  ## each RL library that has an adapter, in an environment of its own

adapter-trl: EXAMPLE := docs.adapters.trl_stages
adapter-verifiers: EXAMPLE := docs.adapters.verifiers_eval
adapter-openenv: EXAMPLE := docs.adapters.openenv_episodes
adapter-skyrl: EXAMPLE := docs.adapters.skyrl_episode
adapter-gem: EXAMPLE := docs.adapters.gem_episode

$(ADAPTERS): adapter-%: .venv-%/.installed
	timeout --kill-after=30s 540 .venv-$*/bin/python $(LANE_PYTEST) tests/adapters/$*
	timeout --kill-after=30s 240 .venv-$*/bin/python -m $(EXAMPLE)

# The folder for Inspect, built and run through Inspect's registry. This lane and the next have no torch.
adapter-inspect: .venv-inspect/.installed
	timeout --kill-after=30s 300 .venv-inspect/bin/python $(LANE_PYTEST) tests/adapters/inspect
	.venv-inspect/bin/python $(LANE_PYTEST) tests/rubricem_agent/cli/test_evals.py -k exported

# The folder for OpenReward, served and played by OpenReward's client.
adapter-openreward: .venv-openreward/.installed
	timeout --kill-after=30s 200 .venv-openreward/bin/python $(LANE_PYTEST) tests/adapters/openreward

# The signatures that the recipes are checked with, against the packages that the index has; none is installed.
PUBLISHED := .venv-published
adapter-recipes: .venv-trl/.installed $(PUBLISHED)/.fetched
	RUBRICEM_PUBLISHED=$(PUBLISHED) timeout 180 .venv-trl/bin/python $(LANE_PYTEST) tests/adapters/recipes

$(PUBLISHED)/.fetched: tests/adapters/published/sources.json | .venv-trl/.installed
	timeout --kill-after=5s 300 .venv-trl/bin/python -m pip download --quiet --disable-pip-version-check --no-deps \
	  --only-binary=:all: --python-version 3.12 --dest $(PUBLISHED) nemo-gym==0.4.0 openpipe-art==0.5.18 trl==1.16.0
	for wheel in $(PUBLISHED)/*.whl; do .venv-trl/bin/python -m zipfile -e $$wheel $(PUBLISHED) || exit 1; done
	touch $@

BENCH := $(wildcard tests/bench/test_bench_adapters*.py) -p no:cacheprovider --benchmark-only --benchmark-disable-gc -q --benchmark-timer=time.process_time
bench-adapters: $(ADAPTERS:adapter-%=.venv-%/.installed)  ## what an adapter adds to its library
	for lane in skyrl gem openenv verifiers trl; do \
	  timeout --kill-after=30s 300 .venv-$$lane/bin/python -m pytest -o addopts= -o filterwarnings=default $(BENCH) || exit 1; \
	done

# A step of the local trainer beside one of TRL's: with a bare question, and after as many references as a bank may put.
bench-trl: .venv-trl/.installed  ## a step of the local trainer beside one of TRL's
	.venv-trl/bin/python tests/bench/trl_step.py
	.venv-trl/bin/python tests/bench/trl_step.py --references 512

# torch first and alone: asked for by another package it comes with gigabytes of CUDA. All else is listed, so nothing
# is resolved; that the list fits what the packages ask for is checked afterwards.
.venv-%/.installed: ci/lanes/adapters/%.lock.txt pyproject.toml
	timeout --kill-after=5s 180 $(PYTHON) -m venv .venv-$*
	$(if $(filter inspect openreward,$*),,timeout --kill-after=5s 300 ci/install .venv-$* torch==2.13.0 -c ci/lanes/adapters/$*.lock.txt)
	timeout --kill-after=5s 300 ci/install .venv-$* --no-deps -r ci/lanes/adapters/$*.lock.txt
	timeout --kill-after=5s 180 ci/install .venv-$* --no-deps --no-build-isolation -e .
	.venv-$*/bin/python -m pip check
	touch $@

.PRECIOUS: .venv-%/.installed
