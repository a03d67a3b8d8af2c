# The tests that need no torch, on the newest Python of this machine; `make python-lane`.
NEWEST := $(shell for python in python3.14 python3.13 python3.12 \
  $$(ls -d $(HOME)/.pyenv/versions/3.1[2-9].*/bin/python 2>/dev/null | sort -rV) python3; do \
  $$python -c "" 2>/dev/null && { echo $$python; break; }; done)
NEWEST_VENV := .venv-newest
WITHOUT_TORCH := tests/redteam tests/rubricem_env tests/rubricem_agent/evals tests/rubricem_records tests/rubricem_viewer

.PHONY: python-lane

LANES += python-lane
python-lane: $(NEWEST_VENV)/.installed  ## the newest Python of this machine
	@echo "tested with $$($(NEWEST_VENV)/bin/python --version)"
	timeout --kill-after=5s 900 $(NEWEST_VENV)/bin/python -m pytest -n 2 --dist loadfile $(WITHOUT_TORCH)

$(NEWEST_VENV)/.installed: ci/lanes/test/lock.txt pyproject.toml
	timeout --kill-after=5s 180 $(NEWEST) -m venv $(NEWEST_VENV)
	timeout --kill-after=5s 300 ci/install $(NEWEST_VENV) \
	  -c ci/lanes/test/lock.txt -e '.[tools,documents,sql,judge,viewer,dev]'
	touch $@
