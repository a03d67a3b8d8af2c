# The documents as a site, built with strict links, in an environment of its own; `make docs-lane`.
DOCS := .venv-docs

.PHONY: docs-lane docs-figures docs-reference

LANES += docs-lane
docs-lane: $(DOCS)/.installed  ## the documents as a site, in build/site
	NO_MKDOCS_2_WARNING=1 timeout --kill-after=5s 240 $(DOCS)/bin/python -m mkdocs build --strict -f ci/lanes/docs/mkdocs.yml --site-dir $(CURDIR)/build/site
	grep -q '^- \[Quickstart\](quickstart.md): ' build/site/llms.txt

# What is drawn and what is read off the code; tests hold that both are up to date.
docs-figures:  ## draw the charts of the documents
	$(PYTHON) docs/make/figures.py
	.venv/bin/python docs/make/charts.py

docs-reference: $(VENV)/.installed-test  ## write the reference pages from the code
	.venv/bin/python docs/make/configuration.py
	.venv/bin/python docs/make/commands.py
	.venv/bin/python docs/make/tree.py
	.venv/bin/python docs/make/versions.py
	.venv/bin/python docs/make/evaluations.py
	.venv/bin/python docs/make/llms.py

$(DOCS)/.installed: ci/lanes/docs/lock.txt
	timeout --kill-after=5s 180 $(PYTHON) -m venv $(DOCS)
	timeout --kill-after=5s 110 ci/install $(DOCS) \
	  -c ci/lanes/docs/lock.txt mkdocs-material latex2mathml
	touch $@
