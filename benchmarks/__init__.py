# SPDX-License-Identifier: Apache-2.0
"""Measurements of Quire beside its peers, and the tables and pictures made from them."""
