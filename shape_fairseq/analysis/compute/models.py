"""Trained models on a data-bin: loading them, batches of a subset, and translating it."""

import argparse
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch
from fairseq import checkpoint_utils, utils
from fairseq.data import Dictionary, LanguagePairDataset
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from tqdm import tqdm

from ... import data_folder, models  # noqa: F401 - models: it registers the architectures
from ...errors import UserError, one_line
from ...evaluation.training_folder import RECIPE, check_same_data, read_recipe
from ...search import Search

log = logging.getLogger(__name__)

# fairseq tells of every step; the commands here print results.
logging.getLogger("fairseq").setLevel(logging.WARNING)
warnings.filterwarnings("ignore", "Support for mismatched key_padding_mask")


def choose_device(cpu: bool) -> torch.device:
    """The GPU where there is one and nobody said otherwise."""
    return torch.device("cuda" if torch.cuda.is_available() and not cpu else "cpu")


class DataBin:
    """One dataset setting of a data folder, as fairseq's translation task sees it."""

    def __init__(self, data: Path, setting: str):
        self.data = data
        self.setting = setting
        self.folder = data / setting
        self.languages = data_folder.languages(data)
        paths = [self.folder / f"dict.{language}.txt" for language in self.languages]
        if not all(path.is_file() for path in paths):
            raise UserError(f"{self.folder} is no data-bin: run data_prep/prepare_*.sh")
        try:
            source, target = (Dictionary.load(str(path)) for path in paths)
        except (ValueError, RuntimeError) as error:
            raise UserError(
                f"a dictionary of {self.folder} is damaged: {one_line(error)}"
            ) from error
        source_lang, target_lang = self.languages
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

    @property
    def target_lang(self) -> str:
        return self.languages[1]

    def subset(self, name: str) -> LanguagePairDataset:
        """The pairs of a subset; none at all is an error."""
        files = data_folder.binarized_paths(self.data, self.setting, name, "bin")
        if not all(file.exists() for file in files):
            raise UserError(f"{self.folder} has no subset {name}")
        if not all(file.stat().st_size for file in files):
            raise UserError(f"the subset {name} of {self.folder} is empty")
        try:
            self.task.load_dataset(name)
            return self.task.dataset(name)
        except Exception as error:  # fairseq raises many kinds for a truncated file
            raise UserError(
                f"the subset {name} of {self.folder} is damaged ({one_line(error)}): delete"
                f" {self.folder} and run data_prep/prepare_*.sh again"
            ) from error


def load(path: Path, data: DataBin):
    """The model of a checkpoint and its configuration; it must know the data's vocabulary."""
    if (path.parent / RECIPE).exists():
        check_same_data(read_recipe(path.parent), path, data.data)
    state = checkpoint_utils.load_checkpoint_to_cpu(str(path))
    embeddings = state["model"].get("decoder.embed_tokens.weight")
    if embeddings is None:
        raise UserError(f"{path} is no checkpoint of a translation model: it has no decoder")
    known = embeddings.size(0)
    if known != len(data.dictionary):
        raise UserError(
            f"{path} has a vocabulary of {known:,} symbols and {data.folder} one of"
            f" {len(data.dictionary):,}: give the data that it was trained on"
        )
    (model,), config, _ = checkpoint_utils.load_model_ensemble_and_task(
        [str(path)], task=data.task, state=state
    )
    return model, config


def load_for_inference(path: Path, data: DataBin, device: torch.device):
    """The model of a checkpoint, without dropout and shifts."""
    model, _ = load(path, data)
    return model.to(device).eval()


def to_device(batch: dict, device: torch.device) -> dict:
    """fairseq's way to move a batch."""
    return utils.move_to_cuda(batch) if device.type == "cuda" else batch


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


def translate(
    model, data: DataBin, subset: str, indices: list[int], search: Search, max_tokens: int, title=""
) -> dict[int, str]:
    """Translations of a subset's sequences by their index, in subwords, with fairseq's search."""
    dataset = data.subset(subset)
    generator = data.task.build_generator([model], argparse.Namespace(**vars(search)))
    device = next(model.parameters()).device
    translations = {}
    for numbers, batch in batches(dataset, indices, max_tokens, title):
        hypotheses = data.task.inference_step(generator, [model], to_device(batch, device))
        for number, beams in zip(numbers, hypotheses, strict=True):
            translations[number] = data.dictionary.string(beams[0]["tokens"])
    return translations
