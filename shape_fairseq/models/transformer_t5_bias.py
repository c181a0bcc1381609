"""T5 bias: fairseq's Transformer with learned, bucketed biases, and its architectures."""

from argparse import Namespace
from functools import partial

import torch

from ..errors import OptionError
from ..modules.biased_attention import BiasedSelfAttention
from ..modules.t5_bias import BucketedBias
from .architectures import Option, register
from .relative_positions import RelativePositionsModel


@register("t5_bias")
class TransformerT5BiasModel(RelativePositionsModel):
    """A Transformer that learns a bias for each bucket of distances (Raffel et al., 2020)."""

    options = (
        Option("--bias-buckets", "N", "how many groups of distances are told apart"),
        Option("--bias-max-distance", "L", "all distances from L on share a bucket"),
    )

    @classmethod
    def attention_builder(cls, cfg, side, causal):
        options = (cfg.bias_buckets, cfg.bias_max_distance)
        bias = BucketedBias(side.attention_heads, *options, causal, width=side.embed_dim)
        return partial(BiasedSelfAttention, distance_bias=bias, causal=causal)

    @classmethod
    def build_model(cls, args: Namespace, task):
        """Refuse what torch's DDP would end in the first update, then build the model."""
        ranks = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
        recomputed = getattr(args, "checkpoint_activations", False)
        backend = getattr(args, "ddp_backend", None)
        if ranks > 1 and recomputed and backend not in ("legacy_ddp", "no_c10d"):
            raise OptionError(
                "the layers of T5 bias share a table: with --checkpoint-activations on several"
                " ranks use --ddp-backend legacy_ddp"
            )
        return super().build_model(args, task)

    @classmethod
    def check_options(cls, args: Namespace) -> None:
        """Refuse buckets that cannot be shared out too."""
        super().check_options(args)
        buckets, distance = args.bias_buckets, args.bias_max_distance
        if buckets < 4 or buckets % 2:
            raise OptionError(f"--bias-buckets must be an even number from 4 on, got {buckets}")
        if distance <= buckets // 2:
            raise OptionError(
                f"--bias-max-distance must be more than half of --bias-buckets, got {distance}"
            )
