# The files for clusters against Kubernetes' and KubeRay's schemas, and the image's lock resolved again, which needs the
# package index; `make cluster-lane`.
CLUSTER := .venv-cluster

.PHONY: cluster-lane

LANES += cluster-lane
cluster-lane: $(CLUSTER)/.installed  ## the files for clusters, against their schemas
	timeout --kill-after=5s 300 $(CLUSTER)/bin/python $(LANE_PYTEST) tests/lanes/cluster

$(CLUSTER)/.installed: ci/lanes/cluster/lock.txt
	timeout --kill-after=5s 90 $(PYTHON) -m venv $(CLUSTER)
	timeout --kill-after=5s 180 ci/install $(CLUSTER) -c ci/lanes/cluster/lock.txt kubernetes-validate pytest uv
	touch $@
