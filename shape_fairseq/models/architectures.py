"""What both models share: fairseq's own sizes, and options that are checked while parsing."""

from argparse import Namespace
from collections.abc import Callable

from fairseq.models import ARCH_CONFIG_REGISTRY, register_model_architecture

from ..errors import OptionError

SIZES = ("", "_tiny", "_iwslt_de_en", "_wmt_en_de", "_wmt_en_de_big")


def non_negative_int(args: Namespace, option: str, default: int) -> int:
    """The value of `option` such as --max-shift; anything else ends with one line.

    The parser keeps these options as text: argparse would answer with a page of usage.
    """
    value = getattr(args, option.lstrip("-").replace("-", "_"), default)
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = -1
    if number < 0 or number != float(value):
        raise OptionError(f"{option} must be an integer of at least 0, got {value}")
    return number


def register_sizes(model: str, check_options: Callable[[Namespace], None]) -> None:
    """Register `model` in all of fairseq's Transformer sizes, e.g. transformer_shape_wmt_en_de."""
    for size in SIZES:
        stock = ARCH_CONFIG_REGISTRY[f"transformer{size}"]

        def architecture(args: Namespace, stock=stock) -> None:
            stock(args)
            check_options(args)

        register_model_architecture(model, f"{model}{size}")(architecture)
