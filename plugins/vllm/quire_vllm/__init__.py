# SPDX-License-Identifier: Apache-2.0
"""Quire's attention as attention backends of vLLM.

vLLM finds `register` by its entry point, in every process that it starts; nothing has to be imported by hand.
"""

from quire_vllm.registration import register

__all__ = ["register"]
