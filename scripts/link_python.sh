#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes `import quire` in .venv find the package of a build tree: link_python.sh <build>/python
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

site=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
realpath "$1" >"$site/quire.pth"
echo "python: .venv now imports quire from $1"
