# SPDX-License-Identifier: Apache-2.0
"""What the tests against code from elsewhere (torch, transformers) need."""

import torch

# The matrices are so small that waking a second thread costs more than the work.
torch.set_num_threads(1)
