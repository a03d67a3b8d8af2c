# The sdist and the wheel, walked through outside the repository; `make wheel-lane`.
WHEEL := .venv-wheel

.PHONY: wheel-lane

LANES += wheel-lane
wheel-lane: $(WHEEL)/.installed  ## the sdist and the wheel, outside the repository
	rm -rf build/dist
	timeout --kill-after=5s 200 $(WHEEL)/bin/python -m build --installer uv --outdir build/dist .
	timeout --kill-after=5s 200 $(WHEEL)/bin/python -m build --installer uv --wheel --outdir build/dist/tree .
	RUBRICEM_DIST=build/dist timeout --kill-after=5s 1200 $(WHEEL)/bin/python $(LANE_PYTEST) tests/lanes/wheel

$(WHEEL)/.installed:
	timeout --kill-after=5s 180 $(PYTHON) -m venv $(WHEEL)
	timeout --kill-after=5s 200 ci/install $(WHEEL) build pytest pytest-asyncio uv
	touch $@
