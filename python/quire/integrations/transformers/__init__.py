# SPDX-License-Identifier: Apache-2.0
"""Quire as an attention of Hugging Face transformers, from version 5.17 on.

>>> import quire.integrations.transformers
>>> quire.integrations.transformers.register()
>>> model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="quire")  # doctest: +SKIP
>>> model.generate(**inputs)  # doctest: +SKIP

What Quire cannot compute raises an error that says why; no other attention is taken in its place.
"""

from __future__ import annotations

from quire.integrations.transformers.attention import attention
from quire.integrations.transformers.cache import PagedCache
from quire.integrations.transformers.registration import NAME, register

__all__ = ["NAME", "PagedCache", "attention", "register"]
