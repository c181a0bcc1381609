"""RPE: fairseq's Transformer with relative self-attention, and its architectures."""

from argparse import ArgumentParser, Namespace

from fairseq.distributed import fsdp_wrap
from fairseq.models import register_model
from fairseq.models.transformer import (
    TransformerDecoderBase,
    TransformerEncoderBase,
    TransformerModel,
)
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase

from ..compat import EncoderLayerWithoutCopies
from ..errors import OptionError
from ..modules.relative_attention import RelativeMultiheadAttention
from .architectures import non_negative_int, register_sizes

DEFAULT_MAX_RELATIVE_DISTANCE = 16  # of Shaw et al. and of the paper


def relative_self_attention(
    layer, embed_dim: int, cfg, side, causal: bool
) -> RelativeMultiheadAttention:
    """What stands in a layer where fairseq's own would put its MultiheadAttention."""
    return RelativeMultiheadAttention(
        embed_dim,
        side.attention_heads,
        dropout=cfg.attention_dropout,
        self_attention=True,
        q_noise=layer.quant_noise,
        qn_block_size=layer.quant_noise_block_size,
        max_relative_distance=cfg.max_relative_distance,
        causal=causal,
    )


class RelativeEncoderLayer(EncoderLayerWithoutCopies):
    """fairseq's encoder layer with relative self-attention."""

    def build_self_attention(self, embed_dim, cfg):
        return relative_self_attention(self, embed_dim, cfg, cfg.encoder, causal=False)


class RelativeDecoderLayer(TransformerDecoderLayerBase):
    """fairseq's decoder layer with relative self-attention; the cross-attention is fairseq's."""

    def build_self_attention(self, embed_dim, cfg, add_bias_kv=False, add_zero_attn=False):
        return relative_self_attention(self, embed_dim, cfg, cfg.decoder, causal=True)


def wrapped(layer, cfg):
    """The layer inside what fairseq puts around its own: activation checkpoints and sharding."""
    if cfg.checkpoint_activations:
        layer = checkpoint_wrapper(layer, offload_to_cpu=cfg.offload_activations)
    return fsdp_wrap(
        layer, min_num_params=0 if cfg.checkpoint_activations else cfg.min_params_to_wrap
    )


class RelativeEncoder(TransformerEncoderBase):
    """fairseq's encoder made of relative layers."""

    def build_encoder_layer(self, cfg):
        return wrapped(RelativeEncoderLayer(cfg, return_fc=self.return_fc), cfg)


class RelativeDecoder(TransformerDecoderBase):
    """fairseq's decoder made of relative layers."""

    def build_decoder_layer(self, cfg, no_encoder_attn=False):
        return wrapped(RelativeDecoderLayer(cfg, no_encoder_attn), cfg)


@register_model("transformer_rpe")
class TransformerRPEModel(TransformerModel):
    """A Transformer that knows positions by their distance alone (Shaw et al., 2018)."""

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        """Add --max-relative-distance to fairseq's own options."""
        super().add_args(parser)
        parser.add_argument(
            "--max-relative-distance",
            default=DEFAULT_MAX_RELATIVE_DISTANCE,
            metavar="L",
            help="RPE: distances beyond L are not told apart from L"
            f" (default: {DEFAULT_MAX_RELATIVE_DISTANCE})",
        )

    @classmethod
    def build_model(cls, args: Namespace, task):
        """Build fairseq's model from relative layers."""
        check_options(args)
        # fairseq hands the options of a namespace on to the builders, those of Hydra it forgets.
        return super().build_model(args if isinstance(args, Namespace) else Namespace(**args), task)

    @classmethod
    def build_encoder(cls, cfg, src_dict, embed_tokens):
        return RelativeEncoder(cfg, src_dict, embed_tokens)

    @classmethod
    def build_decoder(cls, cfg, tgt_dict, embed_tokens):
        return RelativeDecoder(cfg, tgt_dict, embed_tokens, no_encoder_attn=cfg.no_cross_attention)


def check_options(args: Namespace) -> None:
    """Refuse, before any work is done, options that contradict relative positions."""
    args.max_relative_distance = non_negative_int(
        args, "--max-relative-distance", DEFAULT_MAX_RELATIVE_DISTANCE
    )
    args.no_token_positional_embeddings = True
    contradictions = {
        "encoder_learned_pos": "it has no absolute positions",
        "decoder_learned_pos": "it has no absolute positions",
        "cross_self_attention": "source and target have no distance",
        "encoder_xformers_att_config": "xFormers knows no relative positions",
        "decoder_xformers_att_config": "xFormers knows no relative positions",
    }
    for option, reason in contradictions.items():
        if getattr(args, option, None):
            raise OptionError(f"drop --{option.replace('_', '-')} for RPE: {reason}")


register_sizes("transformer_rpe", check_options)
