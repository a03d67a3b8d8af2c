# The task for Harbor with Harbor's own checks; `make harbor-lane`. Harbor needs Python 3.12 or newer.
HARBOR := .venv-harbor

.PHONY: harbor-lane

LANES += harbor-lane
harbor-lane: $(HARBOR)/.installed  ## the task for Harbor and the export to ATIF, by Harbor's own checks
	timeout --kill-after=5s 120 $(HARBOR)/bin/harbor lint docs/hubs/harbor/deep-research
	timeout --kill-after=5s 240 $(HARBOR)/bin/python $(LANE_PYTEST) tests/adapters/harbor tests/rubricem_records/rollouts/test_atif.py

# All is listed, so nothing is resolved.
$(HARBOR)/.installed: ci/lanes/harbor/lock.txt pyproject.toml
	timeout --kill-after=5s 180 $(NEWEST) -m venv $(HARBOR)
	timeout --kill-after=5s 400 ci/install $(HARBOR) --no-deps -r ci/lanes/harbor/lock.txt
	timeout --kill-after=5s 180 ci/install $(HARBOR) --no-deps -e .
	$(HARBOR)/bin/python -m pip check
	touch $@
