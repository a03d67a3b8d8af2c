# The viewer's pages in Debian's Chromium, walked by Playwright and read by axe; `make browser-lane`.
BROWSER := .venv-browser

.PHONY: browser-lane viewer-bundle

LANES += browser-lane
browser-lane: $(BROWSER)/.installed  ## the viewer in Chromium
	timeout --kill-after=10s 900 $(BROWSER)/bin/python $(LANE_PYTEST) tests/lanes/browser

# Only who changes the page needs node: what it builds is committed.
viewer-bundle:  ## build the viewer's page with node
	cd rubricem_viewer/web && npm ci --no-audit --no-fund && npm run check && npm run build

$(BROWSER)/.installed: ci/lanes/browser/lock.txt pyproject.toml tests/lanes/browser/package-lock.json
	timeout --kill-after=5s 90 $(PYTHON) -m venv $(BROWSER)
	timeout --kill-after=5s 300 ci/install $(BROWSER) \
	  -c ci/lanes/browser/lock.txt -e '.[viewer]' chromadb playwright pytest
	timeout --kill-after=5s 120 npm ci --prefix tests/lanes/browser --no-audit --no-fund
	touch $@
