"""Size of a cache of merged latents.

The questions are those of arXiv 2505.13544.
"""

from __future__ import annotations
