# SPDX-License-Identifier: Apache-2.0
import os

import numpy as np
import pytest

# Read when the first op runs: scratch on the CPU is NaN when an op gets it.
os.environ.setdefault("QUIRE_POISON_SCRATCH", "1")
os.environ.setdefault("QUIRE_SHARE_SHORT_CALLS", "1")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)
