# Random small changes of the core, each of which a test must notice; every night, not in .ci/run. `make mutation-lane`.
.PHONY: mutation-lane

LANES += mutation-lane
mutation-lane: $(VENV)/.installed-test  ## random changes of the core, each of which a test must notice
	timeout --kill-after=10s 1500 $(BIN)/python -m tests.lanes.mutation.lane
