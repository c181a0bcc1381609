"""What an experiment is: a TOML file, each key of it typed, checked and documented here."""

import dataclasses
import difflib
import re
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..data_folder import RECIPES, SETTINGS
from ..errors import UserError
from ..model_names import MODELS, key_of
from ..search import Search
from .variables import LARGEST_SEED, fairseq_path, shell_words

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

ANALYSES = ("token-scores", "length-bleu", "curves", "speed", "similarity", "swap", "lengths")
LARGEST_NUMBER = 10**12 - 1  # what data_prep takes, too
TYPE_NAMES = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


def key(
    default: Any,
    help: str,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """A key of the file: its default, what it means, and which values it may have."""
    limits = {"help": help, "minimum": minimum, "maximum": maximum, "choices": choices}
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata=limits)
    return field(default=default, metadata=limits)


@dataclass(frozen=True)
class Corpus:
    """The text. What is not given is as data_prep/prepare_KIND.sh has it."""

    kind: Literal["demo", "multi30k", "wmt16", "folder", "prepared"] = key(
        "demo",
        "an invented language pair, a benchmark, the paper's data, your texts in the folder raw,"
        " or the folder raw that data_prep made already",
    )
    source_lang: str = key("en", "the language to translate from")
    target_lang: str = key("de", "the language to translate into")
    raw: str | None = key(None, "the folder of the texts, instead of a download")
    seed: int | None = key(None, "demo: of the corpus; no other key changes it", 1, LARGEST_SEED)
    train_pairs: int | None = key(None, "demo: sentence pairs to train on", 1)
    valid_pairs: int | None = key(None, "demo: sentence pairs to validate on", 1)
    test_pairs: int | None = key(None, "demo: sentence pairs to test on", 1)
    nesting: float | None = key(None, "demo: how readily clauses are added", 0, 1)
    bpe_merges: int | None = key(None, "joint BPE merges", 1)
    extrapolate_limit: int | None = key(None, "longest training pair of EXTRAPOLATE, subwords", 1)
    group_size: int | None = key(None, "sentences in a sequence of INTERPOLATE", 2)
    swapped_sample: int | None = key(None, "training sequences in the swapped set", 1)
    max_pair_tokens: int | None = key(None, "longest training pair in tokens", 1)
    max_positions: int | None = key(None, "longest sequence to validate and test on, subwords", 1)

    @property
    def prepared(self) -> Path | None:
        """The folder that data_prep made already, if it did."""
        return Path(self.raw) if self.kind == "prepared" and self.raw else None


ModelOptions = dataclasses.make_dataclass(
    "ModelOptions",
    [
        (
            key_of(option),
            type(default) | None,
            key(None, f"{model.title}'s {option} ({default})", 0),
        )
        for model in MODELS.values()
        for option, default in model.options.items()
    ],
    frozen=True,
)


@dataclass(frozen=True)
class Cell(ModelOptions):  # type: ignore[misc, valid-type]
    """The trainings on one setting."""

    updates: int | None = key(None, "updates of a training", 1)
    max_shift: int = key(500, "SHAPE's K", 0)
    tune_shifts: list[int] = key([], "more K, of which validation BLEU chooses the best", 0)
    falling_lr: float | None = key(
        None, "a learning rate that falls to zero from this, not the recipe's schedule", 0, 1
    )
    models: list[str] | None = key(None, "instead of the experiment's", choices=tuple(MODELS))
    seeds: list[int] | None = key(None, "instead of the experiment's", 1, LARGEST_SEED)
    options: str = key("", "more options of fairseq-train on this setting, as a shell reads them")


@dataclass(frozen=True)
class Training:
    """How the models are trained; the recipes have the paper's values."""

    size: Literal["base", "tiny"] = key("base", "the paper's Transformer, or one for a CPU")
    batch_tokens: int | None = key(None, "tokens in an update (the recipe's)", 1)
    max_tokens: int | None = key(None, "tokens that a GPU holds (the recipe's)", 1)
    saves: int | None = key(
        None, "save and validate so many times, not after epochs (as the recipe does)", 1
    )
    options: str = key("", "more options of fairseq-train, as a shell reads them; they win")
    vanilla: Cell = field(default_factory=Cell)
    extrapolate: Cell = field(default_factory=Cell)
    interpolate: Cell = field(default_factory=Cell)
    scaling_nmt: Cell = field(default_factory=Cell)


@dataclass(frozen=True)
class Translation:
    """How the test sets are translated."""

    average: int = key(10, "checkpoints to average", 1)
    beam: int = key(Search.beam, "beam width", 1)
    lenpen: float = key(Search.lenpen, "length penalty")
    max_tokens: int = key(3500, "tokens in a batch", 1)
    subsets: list[str] | None = key(None, "the test sets to translate (all)")
    lowercased_tokenized: bool = key(False, "also BLEU as some papers on Multi30k report it")
    options: str = key("", "more options of fairseq-generate, as a shell reads them; they win")


@dataclass(frozen=True)
class Analysis:
    """The figures and tables besides BLEU; length-bleu takes all seeds, the others the first."""

    names: list[str] | None = key(None, "which analyses (all that suit)", choices=ANALYSES)
    swapped_sequences: int = key(500, "sequences in which sentences are swapped", 1)
    speed_turns: int = key(15, "turns of each model when speed is measured", 1)


@dataclass(frozen=True)
class Cluster:
    """Where the jobs run."""

    kind: Literal["local", "slurm"] = key("local", "this machine, or SLURM; --cluster is the same")
    jobs: int | None = key(None, "jobs side by side (local: what cores or GPUs allow)", 1)
    gpus: int | None = key(None, "GPUs of a training, 0: the CPU (local: one if there is one)", 0)
    cpus: int = key(2, "SLURM: cores of a job", 1)
    hours: float = key(48.0, "SLURM: time limit of a job; a training then goes on", 0.01)
    partition: str | None = key(None, "SLURM: where to run")
    constraint: str | None = key(None, "SLURM: the nodes that will do")


@dataclass(frozen=True)
class Experiment:
    """A whole experiment, from raw text to report.html."""

    name: str = key("experiment", "names the folder runs/NAME if --out is not given")
    settings: list[str] = key([*SETTINGS], "which cells of table 2", choices=RECIPES)
    models: list[str] = key(["ape", "shape", "rpe"], "which models", choices=tuple(MODELS))
    seeds: list[int] = key([1], "of the trainings; they change nothing else", 1, LARGEST_SEED)
    corpus: Corpus = field(default_factory=Corpus)
    training: Training = field(default_factory=Training)
    translation: Translation = field(default_factory=Translation)
    analysis: Analysis = field(default_factory=Analysis)
    cluster: Cluster = field(default_factory=Cluster)

    def cell(self, setting: str) -> Cell:
        return getattr(self.training, setting)

    def models_of(self, setting: str) -> list[str]:
        return self.cell(setting).models or self.models

    def seeds_of(self, setting: str) -> list[int]:
        return self.cell(setting).seeds or self.seeds

    def updates(self, setting: str) -> int:
        """The updates of a training, which a file must give."""
        updates = self.cell(setting).updates
        if updates is None:
            raise UserError(f"training.{setting}.updates is missing")
        return updates

    def save_every(self, setting: str) -> int | None:
        """The updates between two checkpoints, unless that is the recipe's."""
        saves = self.training.saves
        return -(-self.updates(setting) // saves) if saves else None

    def checkpoints_saved(self, setting: str) -> int | None:
        """How many checkpoints a training leaves, unless the recipe says it."""
        interval = self.save_every(setting)
        return self.updates(setting) // interval if interval else None


def load(path: Path, overrides: list[str]) -> Experiment:
    """Read and check a file; `overrides` are like training.interpolate.updates=2000."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"the experiment file {path} is missing") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is no UTF-8 text") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UserError(f"{path}: {error}") from error
    for override in overrides:
        _set(table, override)
    try:
        experiment = _read(Experiment, table, "")
        _check_together(experiment)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    return experiment


def _set(table: dict, override: str) -> None:
    name, equals, text = override.partition("=")
    if not equals:
        raise UserError(f"--set {override}: give KEY=VALUE, such as training.vanilla.updates=2000")
    *sections, last = name.strip().split(".")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        value = text  # a text needs no quotes, which a shell would take away
    for section in sections:
        table = table.setdefault(section, {})
        if not isinstance(table, dict):
            raise UserError(f"--set {override}: {section} is no section")
    table[last] = value


def _read(cls: type, table: object, prefix: str) -> Any:
    """A dataclass from a table, with every key checked."""
    if not isinstance(table, dict):
        raise UserError(f"{prefix.rstrip('.')} must be a section with keys")
    hints = typing.get_type_hints(cls)
    fields = {item.name: item for item in dataclasses.fields(cls)}
    for name in table:
        if name not in fields:
            near = _elsewhere(name) or difflib.get_close_matches(name, fields, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(fields)}"
            raise UserError(f"there is no key {prefix}{name}: {hint}")
    values = {}
    for name, value in table.items():
        if dataclasses.is_dataclass(hints[name]):
            values[name] = _read(hints[name], value, f"{prefix}{name}.")
        else:
            values[name] = _value(hints[name], value, prefix + name, fields[name].metadata)
    return cls(**values)


def _elsewhere(name: str) -> list[str]:
    """A key of this name in another section."""
    return [path for path, _ in keys() if path.rpartition(".")[2] == name][:1]


def _value(hint: Any, value: object, path: str, limits: typing.Mapping) -> Any:
    """A value of the type that `hint` names, within its limits."""
    if typing.get_origin(hint) is list:
        if not isinstance(value, list):
            raise UserError(f"{path} must be a list such as [{_example(hint)}], not {value!r}")
        return [_value(typing.get_args(hint)[0], item, path, limits) for item in value]
    if typing.get_origin(hint) is Literal:
        return _choice(value, typing.get_args(hint), path)
    if isinstance(hint, types.UnionType):
        return _value(typing.get_args(hint)[0], value, path, limits)
    if hint is float and type(value) is int:
        value = float(value)
    if type(value) is not hint:
        raise UserError(f"{path} must be {TYPE_NAMES[hint]}, not {value!r}")
    if limits["choices"]:
        return _choice(value, limits["choices"], path)
    if limits["minimum"] is not None and not value >= limits["minimum"]:
        raise UserError(f"{path} must be at least {limits['minimum']}, not {value}")
    if limits["maximum"] is not None and not value <= limits["maximum"]:
        raise UserError(f"{path} must be at most {limits['maximum']}, not {value}")
    if isinstance(value, int | float) and not abs(value) <= LARGEST_NUMBER:
        raise UserError(f"{path} must be a number up to {LARGEST_NUMBER:,}, not {value}")
    if isinstance(value, str) and re.search(r"[\0\n]", value) and not path.endswith("options"):
        raise UserError(f"{path} must be one line of text")
    return value


def _example(hint: Any) -> str:
    return "1, 2" if typing.get_args(hint)[0] is int else '"ape"'


def _choice(value: object, choices: tuple[str, ...], path: str) -> str:
    if value in choices:
        return value
    near = difflib.get_close_matches(str(value), choices, n=1)
    hint = f"did you mean {near[0]}?" if near else f"choose {', '.join(choices)}"
    raise UserError(f"{path}: there is no '{value}': {hint}")


def _check_together(experiment: Experiment) -> None:
    """What the types of single keys cannot tell."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", experiment.name):
        raise UserError(f"name must be letters, digits, '.', '_' and '-', not {experiment.name!r}")
    for path, value in flat(experiment):
        if isinstance(value, list) and len(set(value)) < len(value):
            raise UserError(f"{path} names something twice: {value}")
        if path in ("settings", "models", "seeds") and not value:
            raise UserError(f"{path} must not be empty")
        if path.endswith(".options"):
            try:
                shell_words(value)
            except ValueError as error:
                raise UserError(f"{path} cannot be split into words: {error}") from error
    for setting in experiment.settings:
        experiment.updates(setting)  # refused if it is missing
        saved, average = experiment.checkpoints_saved(setting), experiment.translation.average
        if saved is not None and saved < average:
            raise UserError(
                f"translation.average is {average}, but with training.saves ="
                f" {experiment.training.saves} a training on {setting} saves {saved} checkpoints"
            )
    training, ranks = experiment.training, max(experiment.cluster.gpus or 1, 1)
    held = training.max_tokens and training.max_tokens * ranks
    if training.batch_tokens and held and training.batch_tokens % held:
        raise UserError(
            "training.batch_tokens must be a multiple of training.max_tokens"
            f" ({training.max_tokens}) times the GPUs ({ranks}), not {training.batch_tokens}"
        )
    if experiment.cluster.kind == "slurm" and experiment.cluster.gpus is None:
        raise UserError("cluster.gpus is missing: the GPUs of a training on SLURM, 0 for the CPU")
    corpus = experiment.corpus
    for item in dataclasses.fields(Corpus):
        of_demo = item.metadata["help"].startswith("demo: ")
        if of_demo and corpus.kind != "demo" and getattr(corpus, item.name) is not None:
            raise UserError(f"corpus.{item.name} is for the demo corpus, not for {corpus.kind}")
    for name in ("source_lang", "target_lang"):
        language = getattr(corpus, name)
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", language):
            raise UserError(f"corpus.{name} must be a language such as en, not {language!r}")
    if corpus.kind in ("folder", "prepared") and not corpus.raw:
        raise UserError(f"corpus.raw is missing: the folder of a corpus of kind {corpus.kind}")
    fairseq_path("corpus.raw", corpus.raw or "")


def flat(part: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """All keys of an experiment with their values: training.vanilla.updates, 2000."""
    for item in dataclasses.fields(part):
        value = getattr(part, item.name)
        if dataclasses.is_dataclass(value):
            yield from flat(value, f"{prefix}{item.name}.")
        else:
            yield prefix + item.name, value


def keys(cls: type = Experiment, prefix: str = "") -> Iterator[tuple[str, dataclasses.Field]]:
    """All keys that a file may have."""
    hints = typing.get_type_hints(cls)
    for item in dataclasses.fields(cls):
        if dataclasses.is_dataclass(hints[item.name]):
            yield from keys(hints[item.name], f"{prefix}{item.name}.")
        else:
            yield prefix + item.name, item


def documentation() -> str:
    """All keys with their types, defaults and meanings, as a file would have them."""
    return "\n".join(_document(Experiment, ""))


def _document(cls: type, section: str) -> Iterator[str]:
    hints = typing.get_type_hints(cls)
    yield f"\n[{section}]" if section else ""
    yield f"# {cls.__doc__}"
    defaults, sections = cls(), []
    for item in dataclasses.fields(cls):
        if dataclasses.is_dataclass(hints[item.name]):
            sections.append(item.name)
            continue
        default = getattr(defaults, item.name)
        shown = "" if default is None else " = " + _toml(default)
        choices = item.metadata["choices"] or _literals(hints[item.name])
        listed = f" ({', '.join(choices)})" if choices else ""
        yield f"{item.name + shown:<36}  # {item.metadata['help']}{listed}"
    prefix = f"{section}." if section else ""
    documented = set()
    for name in sections:
        # The cells of table 2 have the same keys.
        if hints[name] in documented:
            yield f"[{prefix}{name}]  # likewise"
        else:
            yield from _document(hints[name], prefix + name)
        documented.add(hints[name])


def _literals(hint: Any) -> tuple[str, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) is Literal else ()


def _toml(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)
