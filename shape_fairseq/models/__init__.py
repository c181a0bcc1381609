"""fairseq models: importing this registers their architectures, as --user-dir does."""

from .. import compat  # noqa: F401, I001 - first: it explains what is missing

from . import transformer_rpe, transformer_shape  # noqa: F401
