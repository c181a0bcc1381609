"""What all models share: fairseq's own sizes, and options that are checked while parsing."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from math import isfinite
from typing import NamedTuple

from fairseq.models import ARCH_CONFIG_REGISTRY, register_model, register_model_architecture
from fairseq.models.transformer import TransformerModel

from ..errors import OptionError

SIZES = ("", "_tiny", "_iwslt_de_en", "_wmt_en_de", "_wmt_en_de_big")


def option_value(args: Namespace, option: str, default):
    """The value of `option` such as --max-shift, still as text where the parser left it so."""
    return getattr(args, option.lstrip("-").replace("-", "_"), default)


def non_negative_int(args: Namespace, option: str, default: int) -> int:
    """The value of `option` such as --max-shift; anything else ends with one line.

    The parser keeps these options as text: argparse would answer with a page of usage.
    """
    value = option_value(args, option, default)
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = -1
    if number < 0 or number != float(value):
        raise OptionError(f"{option} must be an integer of at least 0, got {value}")
    return number


def number_of_at_least(minimum: float) -> Callable[[Namespace, str, float], float]:
    """A check like `non_negative_int` for a number that need not be whole."""

    def check(args: Namespace, option: str, default: float) -> float:
        value = option_value(args, option, default)
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = minimum - 1
        if not isfinite(number) or number < minimum:
            raise OptionError(f"{option} must be a number of at least {minimum:g}, got {value}")
        return number

    return check


class Option(NamedTuple):
    """An option that a model adds to fairseq's own."""

    name: str
    default: float
    metavar: str
    help: str
    check: Callable[[Namespace, str, float], float] = non_negative_int


class ExtendedTransformerModel(TransformerModel):
    """fairseq's Transformer with options of its own."""

    title: str  # in messages
    options: tuple[Option, ...] = ()

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        """Add this model's options to fairseq's own."""
        super().add_args(parser)
        for option in cls.options:
            parser.add_argument(
                option.name,
                default=option.default,
                metavar=option.metavar,
                help=f"{cls.title}: {option.help} (default: {option.default})",
            )

    @classmethod
    def check_options(cls, args: Namespace) -> None:
        """Refuse wrong options before any work is done."""
        for option in cls.options:
            value = option.check(args, option.name, option.default)
            setattr(args, option.name.lstrip("-").replace("-", "_"), value)

    @classmethod
    def option_values(cls, args: Namespace) -> list[float]:
        """The checked values of this model's options, in their order."""
        return [option_value(args, option.name, option.default) for option in cls.options]


def register(name: str) -> Callable[[type], type]:
    """Register a model in all of fairseq's Transformer sizes, e.g. transformer_shape_wmt_en_de."""

    def register_sizes(model: type[ExtendedTransformerModel]) -> type:
        model = register_model(name)(model)
        for size in SIZES:
            stock = ARCH_CONFIG_REGISTRY[f"transformer{size}"]

            def architecture(args: Namespace, stock=stock) -> None:
                stock(args)
                model.check_options(args)

            register_model_architecture(name, f"{name}{size}")(architecture)
        return model

    return register_sizes
