"""Evaluate a training: average its last checkpoints, translate the test sets, score.

    DATA=FOLDER python -m shape_fairseq.experiment.evaluate SAVE

recipes/evaluate.sh lists the environment variables.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from ..data_folder import binarized_paths, check_data, data_setting, languages, read_subsets
from ..errors import UserError, run
from ..evaluation.training_folder import (
    average_path,
    check_same_data,
    checkpoints,
    completed_updates,
    read_recipe,
)
from ..search import Search
from .locking import lock_folder
from .training import PACKAGE, command_path, count_gpus, data_folder, log
from .variables import Variables, fairseq_path

VARIABLES = (
    *("DATA", "RESULTS", "AVERAGE", "BEAM", "LENPEN", "SUBSETS", "MAX_TOKENS", "GPUS"),
    *("FP16", "GENERATE_EXTRA", "LOWERCASED_TOKENIZED", "UNFINISHED", "DRY_RUN"),
)


class Evaluation:
    """The commands that lead from the checkpoints of a training to its result file."""

    def __init__(self, save: Path, variables: Variables):
        self.save = save
        self.dry_run = variables.switch("DRY_RUN")
        self.average = variables.whole_number("AVERAGE", 10)
        self.lowercased_tokenized = variables.switch("LOWERCASED_TOKENIZED")
        usual = Search()
        beam = variables.whole_number("BEAM", usual.beam)
        search = Search(beam=beam, lenpen=variables.number("LENPEN", usual.lenpen))
        self.max_tokens = variables.whole_number("MAX_TOKENS", 3500)
        self.data = data_folder(variables)
        extra = variables.words("GENERATE_EXTRA")
        recipe = read_recipe(save)
        self.setting = recipe.setting
        check_data(self.data, self.setting)
        check_same_data(recipe, save, self.data)
        self.subsets = self._choose_subsets(variables.words("SUBSETS"))
        self.checkpoint = average_path(save, self.average)
        name = recipe.result_name
        if completed_updates(save) is None:
            name = self._name_of_unfinished(name, variables.switch("UNFINISHED"))
        self.result = Path(variables.text("RESULTS", "results")) / name
        if self.result.exists():
            raise UserError(f"{self.result} exists already: delete it or choose another RESULTS")
        device = ["--cpu"]
        if count_gpus(variables, self.dry_run):
            device = ["--fp16"] if variables.switch("FP16", default=True) else []
        self.options = [*search.options(), *device, *extra]
        kind = re.sub(r"[^A-Za-z0-9.-]", "_", "".join(self.options))
        self.generated = save / "generated" / f"{self.checkpoint.stem}{kind}"

    def _choose_subsets(self, wanted: list[str]) -> list[str]:
        """The subsets that are made of no others: newstest2010 and so on, not valid and test."""
        subsets = wanted or read_subsets(self.data).names
        for subset in subsets:
            paths = binarized_paths(self.data, self.setting, subset)
            if "/" in subset or not all(map(Path.exists, paths)):
                raise UserError(f"{paths[0].parent} has no subset {subset}")
        return subsets

    def _name_of_unfinished(self, name: str, wanted: bool) -> str:
        """A training that is not at its end is not evaluated silently."""
        updates = max(checkpoints(self.save))
        if not wanted:
            raise UserError(
                f"{self.save} is not trained to its end, its newest checkpoint has {updates}"
                " updates: run its recipe again, or set UNFINISHED=1 to evaluate it as it is"
            )
        return f"{name.removesuffix('.json')}-at-{updates}.json"

    def translation_of(self, subset: str) -> list[str]:
        """The command that translates a test set."""
        source, target = languages(self.data)
        words = [command_path("fairseq-generate"), self.data / data_setting(self.setting)]
        words += ["--user-dir", PACKAGE, "--task", "translation"]
        words += ["--source-lang", source, "--target-lang", target]
        words += ["--path", self.checkpoint, "--gen-subset", subset]
        words += ["--max-tokens", self.max_tokens, "--required-batch-size-multiple", 1]
        return [*map(str, words), *self.options]

    def averaging(self) -> list[str]:
        words = ["average", self.save, "--number", self.average, "--output", self.checkpoint]
        return [sys.executable, "-m", "shape_fairseq", *map(str, words)]

    def scoring(self) -> list[str]:
        words = ["score", "--data", self.data, "--save", self.save]
        words += ["--checkpoint", self.checkpoint, "--generated", self.generated]
        words += ["--setting", f"average={self.average}"]
        words += ["--setting", f"options={' '.join(self.options)}"]
        words += ["--lowercased-tokenized"] if self.lowercased_tokenized else []
        words += ["--output", self.result]
        return [sys.executable, "-m", "shape_fairseq", *map(str, words)]

    def start(self) -> None:
        """Do what is not done yet."""
        if self.dry_run:
            translations = map(self.translation_of, self.subsets)
            for words in (self.averaging(), *translations, self.scoring()):
                print(shlex.join(words))
            return
        self.generated.mkdir(parents=True, exist_ok=True)
        # Of all evaluations of this training: they share its average. The processes that are
        # started inherit it: what a kill of this one leaves alone still writes to its files.
        with lock_folder(self.generated.parent, "another evaluation") as lock:
            options = {"pass_fds": [lock.fileno()]}
            if not self.checkpoint.exists():
                check(self.averaging(), **options)
            for subset in self.subsets:
                self._translate(subset, **options)
            check(self.scoring(), **options)
        log(f"written: {self.result}")

    def _translate(self, subset: str, **options) -> None:
        """The output appears under its name only when it is complete."""
        output = self.generated / f"{subset}.txt"
        if output.exists():
            log(f"{subset}: translated already")
            return
        partial, logged = Path(f"{output}.partial"), Path(f"{output}.log")
        log(f"{subset}: translating (log: {logged})")
        with open(partial, "wb") as translations, open(logged, "wb") as errors:
            words = self.translation_of(subset)
            result = subprocess.run(words, stdout=translations, stderr=errors, **options)
        if result.returncode:
            lines = logged.read_text(encoding="utf-8", errors="replace").split("\n")
            reason = next((line for line in reversed(lines) if line.strip()), "without a word")
            raise UserError(f"fairseq-generate failed on {subset}: {reason}")
        os.replace(partial, output)


def check(words: list[str], **options) -> None:
    """Run a command of ours, which tells its own errors."""
    status = subprocess.run(words, **options).returncode
    if status:
        sys.exit(status if status > 0 else 128 - status)


def main() -> None:
    Evaluation(fairseq_path("SAVE", sys.argv[1]), Variables(os.environ)).start()


if __name__ == "__main__":
    run(main)
