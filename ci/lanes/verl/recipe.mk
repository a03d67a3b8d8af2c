# The veRL backend on two CPU cores: Ray, FSDP on gloo and our engine on transformers (`make verl-lane`, `make
# verl-edges-lane`), or a real vLLM in its place (`make verl-vllm-lane`).
VERL := .venv-verl
VERL_PIP := ci/install $(VERL)
VERL_VLLM := .venv-verl-vllm
VERL_VLLM_PIP := ci/install $(VERL_VLLM)
VERL_ENVIRONMENT := OMP_WAIT_POLICY=PASSIVE OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1

.PHONY: bench-verl verl-lane verl-edges-lane verl-vllm-lane

# Each run has a hard end of its own, and this is the end of them all. A group of its own: what hangs is killed whole.
LANES += verl-lane verl-edges-lane verl-vllm-lane
verl-lane: $(VERL)/.installed  ## the veRL backend on two CPU cores
	$(VERL_ENVIRONMENT) timeout --kill-after=30s 2400 $(VERL)/bin/python $(LANE_PYTEST) --durations=12 --ignore=tests/lanes/verl/edges tests/lanes/verl

# What goes wrong in a run, and the synchronous mode.
verl-edges-lane: $(VERL)/.installed  ## what goes wrong in a run on veRL
	$(VERL_ENVIRONMENT) timeout --kill-after=30s 2400 $(VERL)/bin/python $(LANE_PYTEST) tests/lanes/verl/edges

verl-vllm-lane: $(VERL_VLLM)/.installed  ## the veRL backend on vLLM's CPU engine
	$(VERL_ENVIRONMENT) timeout --kill-after=30s $(if $(RUBRICEM_SMOLLM2),1800,660) $(VERL_VLLM)/bin/python $(LANE_PYTEST) tests/lanes/verl_vllm

# A step of ours beside one of veRL's own; half an hour on two quiet cores.
bench-verl: $(VERL)/.installed $(VENV)/.installed-test  ## a step of ours beside one of veRL's own
	$(BIN)/python -m tests.bench.verl_step --rounds 2

# torch first and alone: asked for by another package it comes with gigabytes of CUDA. All else is listed, so nothing
# is resolved: veRL asks for less than its own trainer imports. This project too, so that scripts run from any folder.
$(VERL)/.installed: ci/lanes/verl/lock.txt
	timeout --kill-after=5s 180 $(PYTHON) -m venv $(VERL)
	timeout --kill-after=5s 300 $(VERL_PIP) torch==2.13.0
	timeout --kill-after=5s 600 $(VERL_PIP) --no-deps -r ci/lanes/verl/lock.txt
	timeout --kill-after=5s 120 $(VERL_PIP) --no-deps -e .
	touch $@

# Both lists in one. vLLM is told its own name, and of the plugin without which no weights can be changed on a CPU.
$(VERL_VLLM)/.installed: ci/lanes/verl/vllm.lock.txt tests/lanes/vllm/alias_vllm.py tests/lanes/verl_vllm/plugin_metadata.py
	timeout --kill-after=5s 180 $(PYTHON) -m venv $(VERL_VLLM)
	timeout --kill-after=5s 300 $(VERL_VLLM_PIP) torch==2.13.0
	timeout --kill-after=5s 600 $(VERL_VLLM_PIP) --no-deps -r ci/lanes/verl/vllm.lock.txt
	timeout --kill-after=5s 120 $(VERL_VLLM_PIP) --no-deps -e .
	$(VERL_VLLM)/bin/python tests/lanes/vllm/alias_vllm.py
	$(VERL_VLLM)/bin/python tests/lanes/verl_vllm/plugin_metadata.py
	touch $@
