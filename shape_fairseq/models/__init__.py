"""fairseq models: importing this registers their architectures, as --user-dir does."""

from .. import compat  # noqa: F401, I001 - first: it explains what is missing

from . import (  # noqa: F401
    transformer_alibi,
    transformer_cape,
    transformer_randomized,
    transformer_rope,
    transformer_rpe,
    transformer_shape,
    transformer_t5_bias,
)
