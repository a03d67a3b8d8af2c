# Each extra of pyproject.toml alone, with the newest and with the lowest releases that its ranges permit, which needs the
# package index; `make newest-lane`, `make lowest-lane`. With EXTRAS="local trl" these alone; WRITE=1 records what passed.
RELEASES := .venv-releases
EXTRAS ?=
# Where the index has CPU builds of torch, TORCH= (empty) lets the resolver choose.
TORCH ?= torch==2.13.0
RELEASES_RUN = timeout --kill-after=30s $(1) $(RELEASES)/bin/python -m tests.lanes.newest.lane $(2) \
  --uv $(CURDIR)/$(RELEASES)/bin/uv --torch '$(TORCH)' $(if $(WRITE),--write)

.PHONY: newest-check newest-lane lowest-lane

LANES += newest-lane lowest-lane
newest-lane: $(RELEASES)/.installed  ## each extra alone, with its newest releases
	$(call RELEASES_RUN,2700,newest $(EXTRAS))

lowest-lane: $(RELEASES)/.installed  ## each extra alone, with its lowest releases
	$(call RELEASES_RUN,2700,lowest $(EXTRAS))

# All of them take half an hour on two cores, so CI has these: what stands on transformers and torch, which change most,
# and what compiled wheels decide. The nightly lanes have the rest.
newest-check: EXTRAS := cluster local documents
newest-check: $(RELEASES)/.installed  ## the part of newest-lane that CI runs
	$(call RELEASES_RUN,840,newest $(EXTRAS))

$(RELEASES)/.installed:
	timeout --kill-after=5s 90 $(PYTHON) -m venv $(RELEASES)
	timeout --kill-after=5s 180 ci/install $(RELEASES) packaging uv
	touch $@
