# Our MCP client on mcp 1.x, and software by other people at either end; `make mcp-lane`.
MCP1 := .venv-mcp1

.PHONY: mcp-lane

LANES += mcp-lane
mcp-lane: $(MCP1)/.installed $(VENV)/.installed-test  ## our MCP client and server against software by other people
	timeout --kill-after=5s 300 $(MCP1)/bin/python $(LANE_PYTEST) tests/lanes/mcp1
	timeout --kill-after=5s 240 $(VENV)/bin/python $(LANE_PYTEST) tests/rubricem_env/tools/test_mcp_mounted.py

$(MCP1)/.installed: ci/lanes/mcp/lock.txt pyproject.toml
	timeout --kill-after=5s 90 $(PYTHON) -m venv $(MCP1)
	timeout --kill-after=5s 400 ci/install $(MCP1) \
	  -c ci/lanes/mcp/lock.txt -e . mcp mcp-server-time pytest pytest-asyncio
	touch $@
