#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the virtual environment of benchmarks/model.py's peers: llama.cpp and OpenVINO GenAI, from PyPI.
#   benchmarks/model_peers.sh VENV PYTHON
# A peer without a wheel for this machine is left out; the record says so. Running it again costs nothing.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
venv=${1:?usage: model_peers.sh VENV PYTHON}
base=${2:?usage: model_peers.sh VENV PYTHON}
peers=(xllamacpp==2026.10.11549 openvino-genai==2026.4.1.0)

stamp=$venv/.quire-model-peers
fingerprint() { sha256sum <"$here/model_peers.sh" | cut -d ' ' -f 1; }
if [[ -f $stamp && $(<"$stamp") == "$(fingerprint)" ]]; then exit 0; fi
[[ -x $venv/bin/python ]] || "$base" -m venv "$venv"
for peer in "${peers[@]}"; do
  echo "benchmark: installing $peer into $venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: "$peer" numpy ||
    echo "benchmark: no wheel of $peer for this machine" >&2
done
fingerprint >"$stamp"
