"""What RPE, RoPE, ALiBi and T5 bias share: fairseq's model with another self-attention.

They know distances instead of positions, so there are no position embeddings, and the options that
would bring them back are refused.
"""

from argparse import Namespace
from collections.abc import Callable

from fairseq.distributed import fsdp_wrap
from fairseq.models.transformer import TransformerDecoderBase, TransformerEncoderBase
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase

from ..compat import EncoderLayerWithoutCopies
from ..errors import OptionError
from ..modules.self_attention import DistanceSelfAttention
from .architectures import ExtendedTransformerModel

AttentionBuilder = Callable[..., DistanceSelfAttention]


def self_attention(layer, embed_dim: int, cfg, side) -> DistanceSelfAttention:
    """What stands in a layer where fairseq's own would put its MultiheadAttention."""
    return layer.build_attention(
        embed_dim,
        side.attention_heads,
        dropout=cfg.attention_dropout,
        self_attention=True,
        q_noise=layer.quant_noise,
        qn_block_size=layer.quant_noise_block_size,
    )


class DistanceEncoderLayer(EncoderLayerWithoutCopies):
    """fairseq's encoder layer with another self-attention."""

    def __init__(self, cfg, build_attention: AttentionBuilder, return_fc: bool = False):
        self.build_attention = build_attention  # fairseq's constructor needs it
        super().__init__(cfg, return_fc=return_fc)

    def build_self_attention(self, embed_dim, cfg):
        return self_attention(self, embed_dim, cfg, cfg.encoder)


class DistanceDecoderLayer(TransformerDecoderLayerBase):
    """fairseq's decoder layer with another self-attention; the cross-attention is fairseq's."""

    def __init__(self, cfg, build_attention: AttentionBuilder, no_encoder_attn: bool = False):
        self.build_attention = build_attention
        super().__init__(cfg, no_encoder_attn)

    def build_self_attention(self, embed_dim, cfg, add_bias_kv=False, add_zero_attn=False):
        return self_attention(self, embed_dim, cfg, cfg.decoder)


def wrapped(layer, cfg):
    """The layer inside what fairseq puts around its own: activation checkpoints and sharding."""
    if cfg.checkpoint_activations:
        layer = checkpoint_wrapper(layer, offload_to_cpu=cfg.offload_activations)
    return fsdp_wrap(
        layer, min_num_params=0 if cfg.checkpoint_activations else cfg.min_params_to_wrap
    )


class DistanceEncoder(TransformerEncoderBase):
    """fairseq's encoder made of such layers."""

    def __init__(self, cfg, dictionary, embed_tokens, build_attention: AttentionBuilder):
        self.build_attention = build_attention
        super().__init__(cfg, dictionary, embed_tokens)

    def build_encoder_layer(self, cfg):
        return wrapped(DistanceEncoderLayer(cfg, self.build_attention, self.return_fc), cfg)


class DistanceDecoder(TransformerDecoderBase):
    """fairseq's decoder made of such layers."""

    def __init__(self, cfg, dictionary, embed_tokens, build_attention: AttentionBuilder):
        self.build_attention = build_attention
        super().__init__(cfg, dictionary, embed_tokens, no_encoder_attn=cfg.no_cross_attention)

    def build_decoder_layer(self, cfg, no_encoder_attn=False):
        return wrapped(DistanceDecoderLayer(cfg, self.build_attention, no_encoder_attn), cfg)


class RelativePositionsModel(ExtendedTransformerModel):
    """A Transformer that knows positions by their distance alone."""

    @classmethod
    def attention_builder(cls, cfg, side, causal: bool) -> AttentionBuilder:
        """What builds the self-attention of each layer of an encoder or a decoder (`side`)."""
        raise NotImplementedError

    @classmethod
    def build_model(cls, args: Namespace, task):
        """Build fairseq's model from layers with another self-attention."""
        cls.check_options(args)
        # fairseq hands the options of a namespace on to the builders, those of Hydra it forgets.
        return super().build_model(args if isinstance(args, Namespace) else Namespace(**args), task)

    @classmethod
    def build_encoder(cls, cfg, src_dict, embed_tokens):
        build_attention = cls.attention_builder(cfg, cfg.encoder, causal=False)
        return DistanceEncoder(cfg, src_dict, embed_tokens, build_attention)

    @classmethod
    def build_decoder(cls, cfg, tgt_dict, embed_tokens):
        build_attention = cls.attention_builder(cfg, cfg.decoder, causal=True)
        return DistanceDecoder(cfg, tgt_dict, embed_tokens, build_attention)

    @classmethod
    def check_options(cls, args: Namespace) -> None:
        """Refuse, before any work is done, options that contradict relative positions."""
        super().check_options(args)
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
                raise OptionError(
                    f"drop --{option.replace('_', '-')} for {cls.entry.title}: {reason}"
                )
