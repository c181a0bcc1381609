"""What all models share: fairseq's own sizes, and options that are checked while parsing."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from math import isfinite
from typing import Any, NamedTuple

from fairseq.models import ARCH_CONFIG_REGISTRY, register_model, register_model_architecture
from fairseq.models.transformer import TransformerModel

from ..errors import OptionError
from ..model_names import MODELS, Model, key_of

SIZES = ("", "_tiny", "_iwslt_de_en", "_wmt_en_de", "_wmt_en_de_big")


class Option(NamedTuple):
    """An option that a model adds to fairseq's own: a number of its default's type."""

    name: str
    metavar: str
    help: str
    minimum: float = 0
    default: float = 0  # from the registry of models

    @property
    def attribute(self) -> str:
        """Its name in fairseq's namespaces, such as max_shift for --max-shift."""
        return key_of(self.name)

    def parse(self, value: Any) -> float:
        """The value of a command line, Hydra or a checkpoint; a wrong one ends with one line."""
        kind = type(self.default)
        try:
            number = kind(value)
            wrong = not isfinite(number) or number < self.minimum or number != float(value)
        except (TypeError, ValueError, OverflowError):
            wrong = True
        if wrong:
            expected = "an integer" if kind is int else "a number"
            raise OptionError(
                f"{self.name} must be {expected} of at least {self.minimum:g}, got {value}"
            )
        return number

    def parse_text(self, text: str) -> float:
        """What argparse calls; a ValueError it would answer with a page of usage."""
        try:
            return self.parse(text)
        except OptionError as error:
            raise SystemExit(error.code) from None


class ExtendedTransformerModel(TransformerModel):
    """fairseq's Transformer with options of its own."""

    entry: Model  # of the registry: set by `register`
    options: tuple[Option, ...] = ()

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        """Add this model's options to fairseq's own."""
        super().add_args(parser)
        for option in cls.options:
            parser.add_argument(
                option.name,
                type=option.parse_text,
                default=option.default,
                metavar=option.metavar,
                help=f"{cls.entry.title}: {option.help} (default: {option.default})",
            )

    @classmethod
    def check_options(cls, args: Namespace) -> None:
        """Refuse wrong options before any work is done."""
        for option in cls.options:
            value = getattr(args, option.attribute, option.default)
            setattr(args, option.attribute, option.parse(value))

    @classmethod
    def option_values(cls, args: Namespace) -> list[float]:
        """The checked values of this model's options, in their order."""
        return [getattr(args, option.attribute) for option in cls.options]


def register(name: str) -> Callable[[type], type]:
    """Register a model in all of fairseq's Transformer sizes, e.g. transformer_shape_wmt_en_de."""
    entry = MODELS[name]

    def register_sizes(model: type[ExtendedTransformerModel]) -> type:
        model.entry = entry
        model.options = tuple(
            option._replace(default=entry.options[option.name]) for option in model.options
        )
        model = register_model(entry.architecture)(model)
        for size in SIZES:
            stock = ARCH_CONFIG_REGISTRY[f"transformer{size}"]

            def architecture(args: Namespace, stock=stock) -> None:
                stock(args)
                model.check_options(args)

            register_model_architecture(entry.architecture, f"{entry.architecture}{size}")(
                architecture
            )
        return model

    return register_sizes
