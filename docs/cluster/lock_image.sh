#!/usr/bin/env bash
# Resolves all packages of the image anew: veRL with its vLLM, this project's extras, and what flash-attn is built with.
# Writes nothing if they do not fit together.
set -euo pipefail
cd "$(dirname "$0")/../.."
lock=docs/cluster/constraints-image.txt
resolved=$(uv pip compile --quiet --no-header --no-annotate --no-emit-package rubricem \
  --python-version 3.12 --python-platform x86_64-manylinux_2_28 - <<REQUIREMENTS
verl[vllm,cupy-cu130]==0.9.1
TransferQueue==0.1.11
tensordict==0.10.0
wheel
${PWD}[judge,tools,bank]
REQUIREMENTS
)
comments=$(grep '^#' "$lock")
printf '%s\n' "${comments/on 20[0-9-]*;/on $(date +%F);}" "$resolved" > "$lock"
