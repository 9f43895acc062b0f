# SPDX-License-Identifier: Apache-2.0
"""Quire inside other packages. Nothing here is imported by `import quire`; each module imports its own package."""
