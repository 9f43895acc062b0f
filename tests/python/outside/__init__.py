# SPDX-License-Identifier: Apache-2.0
"""What the tests against code from elsewhere (torch, transformers) need."""

import os

import torch

# The matrices are so small that waking a second thread costs more than the work.
torch.set_num_threads(1)

# Where the tensors live: QUIRE_TEST_DEVICE=cuda runs the same tests on a GPU.
if "QUIRE_TEST_DEVICE" in os.environ:
    torch.set_default_device(os.environ["QUIRE_TEST_DEVICE"])


def seeded(seed: int) -> torch.Generator:
    """Numbers for where the tensors live."""
    return torch.Generator(torch.get_default_device()).manual_seed(seed)
