"""How translations are searched for: one place for the options and their defaults."""

import argparse
import dataclasses


@dataclasses.dataclass(frozen=True)
class Search:
    """The options of beam search; the names are those of fairseq-generate.

    Beam width: the paper's table 4. Length penalty: fairseq's page on scaling_nmt. The length:
    the joined sentences of INTERPOLATE need more than fairseq's 200 tokens.
    """

    beam: int = 4
    lenpen: float = 0.6
    max_len_a: float = 2.0
    max_len_b: int = 50

    @classmethod
    def add_options(cls, parser: argparse._ActionsContainer, default: str = "") -> None:
        """Add --beam, --lenpen, --max-len-a and --max-len-b to a parser or to a group of it.

        `default` tells in words where the values come from; what is not given is then None.
        """
        for field in dataclasses.fields(cls):
            parser.add_argument(
                option_of(field.name),
                type=field.type,
                default=None if default else field.default,
                help=f"{HELP[field.name]} (default: {default or '%(default)s'})",
            )

    @classmethod
    def from_options(cls, args: argparse.Namespace) -> "Search":
        """The search that the options of `add_options` ask for."""
        return cls(**{field.name: getattr(args, field.name) for field in dataclasses.fields(cls)})

    def options(self) -> list[str]:
        """As options of fairseq-generate: --beam 4 --lenpen 0.6 --max-len-a 2 --max-len-b 50."""
        return [
            word
            for name, value in dataclasses.asdict(self).items()
            for word in (option_of(name), f"{value:g}")
        ]


HELP = {
    "beam": "width of the beam",
    "lenpen": "length penalty",
    "max_len_a": "a translation is at most a * source + b subwords long: a",
    "max_len_b": "b of the same",
}


def option_of(field: str) -> str:
    """--max-len-a for max_len_a."""
    return f"--{field.replace('_', '-')}"
