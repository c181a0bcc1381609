"""Trained models on a data-bin: loading them, batches of a subset, and translating it."""

import argparse
import dataclasses
import hashlib
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch
from fairseq import checkpoint_utils, utils
from fairseq.data import Dictionary, LanguagePairDataset
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from tqdm import tqdm

from ...errors import UserError
from ...evaluation import results

log = logging.getLogger(__name__)
LANGUAGES = ("en", "de")

# fairseq tells of every step; the commands here print results.
logging.getLogger("fairseq").setLevel(logging.WARNING)
warnings.filterwarnings("ignore", "Support for mismatched key_padding_mask")


def device(cpu: bool) -> torch.device:
    """The GPU where there is one and nobody said otherwise."""
    return torch.device("cuda" if torch.cuda.is_available() and not cpu else "cpu")


class DataBin:
    """One dataset setting of a data folder, as fairseq's translation task sees it."""

    def __init__(self, data: Path, setting: str):
        self.data = data
        self.folder = data / setting
        if not (self.folder / f"dict.{LANGUAGES[0]}.txt").exists():
            raise UserError(f"{self.folder} is no data-bin: run data_prep/prepare_*.sh")
        source, target = (
            Dictionary.load(str(self.folder / f"dict.{language}.txt")) for language in LANGUAGES
        )
        source_lang, target_lang = LANGUAGES
        config = TranslationConfig(
            data=str(self.folder),
            source_lang=source_lang,
            target_lang=target_lang,
            dataset_impl=None,
            required_seq_len_multiple=1,
        )
        self.task = TranslationTask(config, source, target)

    @property
    def dictionary(self) -> Dictionary:
        return self.task.target_dictionary

    def subset(self, name: str) -> LanguagePairDataset:
        """The pairs of a subset; none at all is an error."""
        files = [
            self.folder / f"{name}.{'-'.join(LANGUAGES)}.{language}.bin" for language in LANGUAGES
        ]
        if not all(file.exists() for file in files):
            raise UserError(f"{self.folder} has no subset {name}")
        if not all(file.stat().st_size for file in files):
            raise UserError(f"the subset {name} of {self.folder} is empty")
        self.task.load_dataset(name)
        return self.task.dataset(name)

    def hash(self) -> str:
        """What recipes/common.sh writes into recipe.txt as DATA_HASH."""
        parts = [(self.data / name).read_bytes() for name in ("parameters.txt", "dict.txt")]
        return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def load(path: Path, data: DataBin):
    """The model of a checkpoint and its configuration; it must know the data's vocabulary."""
    recipe = path.parent / "recipe.txt"
    if recipe.exists() and results.read_parameters(recipe)["DATA_HASH"] != data.hash():
        raise UserError(f"{path} was trained on other data than {data.data}")
    try:
        state = checkpoint_utils.load_checkpoint_to_cpu(str(path))
        known = state["model"]["decoder.embed_tokens.weight"].size(0)
    except Exception as error:  # torch raises many kinds for a damaged file
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{path} is no checkpoint of a translation model: {reason}") from error
    if known != len(data.dictionary):
        raise UserError(
            f"{path} has a vocabulary of {known:,} symbols and {data.folder} one of"
            f" {len(data.dictionary):,}: give the data that it was trained on"
        )
    (model,), config, _ = checkpoint_utils.load_model_ensemble_and_task(
        [str(path)], task=data.task, state=state
    )
    return model, config


def load_for_inference(path: Path, data: DataBin, where: torch.device):
    model, _ = load(path, data)
    return model.to(where).eval()


def batches(
    dataset: LanguagePairDataset, indices: list[int], max_tokens: int, title: str
) -> Iterator[tuple[list[int], dict]]:
    """Batches of similar lengths, short ones first, each with its numbers in the data set."""
    length = {index: max(dataset.src_sizes[index], dataset.tgt_sizes[index]) for index in indices}
    groups: list[list[int]] = []
    for index in sorted(indices, key=length.__getitem__):
        if groups and length[index] * (len(groups[-1]) + 1) <= max_tokens:
            groups[-1].append(index)
        else:
            groups.append([index])
    with tqdm(desc=title, total=len(indices), unit="seq", disable=None, leave=False) as bar:
        for group in groups:
            batch = dataset.collater([dataset[index] for index in group])
            yield batch["id"].tolist(), batch
            bar.update(len(group))


def spread(size: int, number: int) -> list[int]:
    """`number` of `size` indices, evenly spread."""
    number = min(size, number)
    return [place * size // number for place in range(number)]


@dataclasses.dataclass(frozen=True)
class Search:
    """The options of beam search, with the recipes' values."""

    beam: int = 4
    lenpen: float = 0.6
    max_len_a: float = 2
    max_len_b: int = 50

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        for field in dataclasses.fields(cls):
            option = f"--{field.name.replace('_', '-')}"
            parser.add_argument(
                option, type=type(field.default), default=field.default, help="default: %(default)s"
            )

    @classmethod
    def of(cls, args: argparse.Namespace) -> "Search":
        return cls(**{field.name: getattr(args, field.name) for field in dataclasses.fields(cls)})


def translate(
    model, data: DataBin, subset: str, indices: list[int], search: Search, max_tokens: int, title=""
) -> dict[int, str]:
    """Translations of a subset's sequences by their index, in subwords, with fairseq's search."""
    dataset = data.subset(subset)
    generator = data.task.build_generator([model], argparse.Namespace(**vars(search)))
    where = next(model.parameters()).device
    found = {}
    for numbers, batch in batches(dataset, indices, max_tokens, title):
        batch = utils.move_to_cuda(batch) if where.type == "cuda" else batch
        hypotheses = data.task.inference_step(generator, [model], batch)
        for number, beams in zip(numbers, hypotheses, strict=True):
            found[number] = data.dictionary.string(beams[0]["tokens"])
    return found
