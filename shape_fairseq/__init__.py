"""Position representations for fairseq's Transformer; load with --user-dir shape_fairseq."""

from . import compat  # noqa: F401, I001 - first: it explains what is missing

from . import transformer_rpe, transformer_shape  # noqa: F401
