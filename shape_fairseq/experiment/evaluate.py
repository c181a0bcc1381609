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

from ..errors import UserError, run
from ..evaluation.scoring import read_subsets
from .locking import lock_folder
from .training import PACKAGE, command_path, count_gpus, log
from .training_folder import (
    check_data,
    completed_updates,
    data_hash,
    data_setting,
    languages,
    read_recipe,
)
from .variables import Variables

VARIABLES = ("DATA", "RESULTS", "AVERAGE", "BEAM", "LENPEN", "SUBSETS", "MAX_TOKENS", "GPUS")
VARIABLES += ("FP16", "GENERATE_EXTRA", "UNFINISHED", "DRY_RUN")


class Evaluation:
    """The commands that lead from the checkpoints of a training to its result file."""

    def __init__(self, save: Path, variables: Variables):
        self.save = save
        self.dry_run = variables.switch("DRY_RUN")
        self.average = variables.whole_number("AVERAGE", 10)
        beam = variables.whole_number("BEAM", 4)
        lenpen = variables.number("LENPEN", 0.6)
        self.max_tokens = variables.whole_number("MAX_TOKENS", 3500)
        self.data = variables.folder("DATA")
        extra = variables.words("GENERATE_EXTRA")
        self.recipe = read_recipe(save)
        self.setting = self.recipe["SETTING"]
        check_data(self.data, self.setting)
        if self.recipe["DATA_HASH"] != data_hash(self.data):
            raise UserError(f"{save} was trained on other data than {self.data}")
        self.subsets = self._choose_subsets(variables.text("SUBSETS").split())
        updates, suffix = self._choose_checkpoints(variables.switch("UNFINISHED"))
        shift = self.recipe["MAX_SHIFT"]
        name = f"{self.setting}-{self.recipe['MODEL']}{shift and f'-k{shift}'}"
        name += f"-seed{self.recipe['SEED']}{suffix}.json"
        self.result = Path(variables.text("RESULTS", "results")) / name
        if self.result.exists():
            raise UserError(f"{self.result} exists already: delete it or choose another RESULTS")
        # The name tells this average from one of an earlier, shorter training.
        self.checkpoint = save / f"average-{self.average}-at-{updates}.pt"
        device = ["--cpu"]
        if count_gpus(variables, self.dry_run):
            device = ["--fp16"] if variables.switch("FP16", default=True) else []
        # Ten joined sentences need more than fairseq's 200 tokens.
        search = f"--beam {beam} --lenpen {lenpen:g} --max-len-a 2 --max-len-b 50".split()
        self.options = [*search, *device, *extra]
        kind = re.sub(r"[^A-Za-z0-9.-]", "_", "".join(self.options))
        self.generated = save / "generated" / f"{self.checkpoint.stem}{kind}"

    def _choose_subsets(self, wanted: list[str]) -> list[str]:
        """The subsets that are made of no others: newstest2010 and so on, not valid and test."""
        groups, _ = read_subsets(self.data)
        data_bin = self.data / data_setting(self.setting)
        source, target = languages(self.data)
        subsets = wanted or sum(groups.values(), [])
        for subset in subsets:
            if not (data_bin / f"{subset}.{source}-{target}.{source}.idx").exists():
                raise UserError(f"{data_bin} has no subset {subset}")
        return subsets

    def _choose_checkpoints(self, unfinished: bool) -> tuple[int, str]:
        """The updates that the average's name tells, and what an unfinished result's name adds."""
        # Checkpoints are checkpoint_EPOCH_UPDATES.pt.
        pattern = re.compile(r"checkpoint_\d+_(\d+)")
        matches = [pattern.fullmatch(path.stem) for path in self.save.glob("*.pt")]
        updates = [int(match[1]) for match in matches if match]
        if len(updates) < self.average:
            raise UserError(
                f"{self.save} has {len(updates)} checkpoints and {self.average} are to be averaged:"
                " train longer or set AVERAGE"
            )
        if completed := completed_updates(self.save):
            return completed, ""
        if not unfinished:
            raise UserError(
                f"{self.save} is not trained to its end, its newest checkpoint has {max(updates)}"
                " updates: run its recipe again, or set UNFINISHED=1 to evaluate it as it is"
            )
        return max(updates), f"-at-{max(updates)}"

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
        words += ["--setting", f"options={' '.join(self.options)}", "--output", self.result]
        return [sys.executable, "-m", "shape_fairseq", *map(str, words)]

    def start(self) -> None:
        """Do what is not done yet."""
        if self.dry_run:
            translations = map(self.translation_of, self.subsets)
            for words in (self.averaging(), *translations, self.scoring()):
                print(shlex.join(words))
            return
        with lock_folder(self.generated, "another evaluation"):
            if not self.checkpoint.exists():
                check(self.averaging())
            for subset in self.subsets:
                self._translate(subset)
            check(self.scoring())
        log(f"written: {self.result}")

    def _translate(self, subset: str) -> None:
        """The output appears under its name only when it is complete."""
        output = self.generated / f"{subset}.txt"
        if output.exists():
            log(f"{subset}: translated already")
            return
        partial, logged = Path(f"{output}.partial"), Path(f"{output}.log")
        log(f"{subset}: translating (log: {logged})")
        with open(partial, "wb") as translations, open(logged, "wb") as errors:
            result = subprocess.run(self.translation_of(subset), stdout=translations, stderr=errors)
        if result.returncode:
            lines = logged.read_text(encoding="utf-8", errors="replace").split("\n")
            reason = next((line for line in reversed(lines) if line.strip()), "without a word")
            raise UserError(f"fairseq-generate failed on {subset}: {reason}")
        os.replace(partial, output)


def check(words: list[str]) -> None:
    """Run a command of ours, which tells its own errors."""
    status = subprocess.run(words).returncode
    if status:
        sys.exit(status if status > 0 else 128 - status)


def main() -> None:
    Evaluation(Path(sys.argv[1]), Variables(os.environ)).start()


if __name__ == "__main__":
    run(main)
