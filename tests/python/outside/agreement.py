# SPDX-License-Identifier: Apache-2.0
"""When two results agree."""

import torch

_ULP = {torch.float32: 2.0**-23, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}


def _errors(actual: torch.Tensor, truth: torch.Tensor) -> tuple[float, float]:
    assert actual.shape == truth.shape, f"{tuple(actual.shape)} is not {tuple(truth.shape)}"
    assert torch.isfinite(actual).all(), "a finite result was expected"
    if actual.numel() == 0:
        return 0.0, 0.0
    difference = (actual.double() - truth).abs()
    return difference.max().item(), difference.square().mean().sqrt().item()


def assert_no_worse(actual: torch.Tensor, rival: torch.Tensor, truth: torch.Tensor):
    """At most twice the error that `rival`, the same computation in the same dtype, makes against the fp64 truth,
    plus an ulp; for the largest error and for the root mean square."""
    assert truth.dtype == torch.float64
    ulp = _ULP[actual.dtype]
    size = truth.abs().max().item() if truth.numel() else 0.0
    rms_size = truth.square().mean().sqrt().item() if truth.numel() else 0.0
    worst, rms = _errors(actual, truth)
    rival_worst, rival_rms = _errors(rival, truth)
    assert worst <= 2 * rival_worst + ulp * size, f"max error {worst:.3g}, rival {rival_worst:.3g}"
    assert rms <= 2 * rival_rms + ulp * rms_size, f"rms error {rms:.3g}, rival {rival_rms:.3g}"


def assert_near(actual: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-5):
    """Largest difference at most `tolerance` of the largest expected value (or of 1, if that is more)."""
    worst, _ = _errors(actual, expected.double())
    size = expected.abs().max().item() if expected.numel() else 0.0
    assert worst <= tolerance * max(size, 1.0), f"max difference {worst:.3g}, largest value {size:.3g}"


def assert_same_bits(actual: torch.Tensor, expected: torch.Tensor, poisoned: bool = False):
    """Bit for bit; and finite, unless NaN is expected: two poisoned results would agree about nothing."""
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    assert poisoned or torch.isfinite(actual.float()).all(), "a finite result was expected"
    different = actual.contiguous().view(torch.uint8) != expected.contiguous().view(torch.uint8)
    assert not different.any(), f"{int(different.sum())} bytes differ"
