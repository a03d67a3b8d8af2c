# What one GPU can show without the network, in at most nine minutes, with the torch of the Python that is named; and the
# same on the CPU at a tiny size.
GPU_PYTHON ?= $(BIN)/python
PARTS ?=
ARENA ?= runs/gpu_arena
REAL ?= runs/gpu_real
MODEL ?= models/smollm2
DOCUMENTS ?=

.PHONY: gpu-lane gpu-arena gpu-real gpu-rehearsal

gpu-lane:  ## what one GPU can show in nine minutes
	env -u OMP_NUM_THREADS timeout --kill-after=10s 540 $(GPU_PYTHON) tests/lanes/gpu/lane.py $(PARTS)

# The credit methods beside each other at 42 million parameters, for half an hour; the same command goes on.
gpu-arena:  ## the credit methods on a GPU, in half an hour
	env -u OMP_NUM_THREADS $(GPU_PYTHON) tests/lanes/gpu/arena.py --bf16 --out $(ARENA)

# SmolLM2 fine-tuned, tested and trained by two recipes and three seeds, in eight minutes; the same command goes on.
gpu-real:  ## a pretrained model learns on a GPU, in eight minutes
	env -u OMP_NUM_THREADS $(GPU_PYTHON) tests/lanes/gpu/real_model.py --model $(MODEL) --out $(REAL) $(if $(DOCUMENTS),--documents $(DOCUMENTS))

gpu-rehearsal: $(VENV)/.installed-test  ## all of them on the CPU, at a tiny size
	timeout --kill-after=10s 540 $(GPU_PYTHON) tests/lanes/gpu/lane.py --rehearse $(PARTS)
	rm -rf $(ARENA)_rehearsal
	timeout --kill-after=10s 180 $(GPU_PYTHON) tests/lanes/gpu/arena.py --rehearse --bf16 --out $(ARENA)_rehearsal
	rm -rf $(REAL)_rehearsal
	timeout --kill-after=10s 180 $(GPU_PYTHON) tests/lanes/gpu/real_model.py --rehearse --model tiny --out $(REAL)_rehearsal
