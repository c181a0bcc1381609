"""From the description of an experiment to its jobs: the commands that a person would type."""

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from ..data_folder import SETTINGS, SUBSETS, SWAPPED
from ..errors import UserError
from ..evaluation.training_folder import COMPLETED_UPDATES, LOG, average_name, result_name
from ..model_names import MODELS, key_of, variable_of
from . import evaluate, training
from .description import ANALYSES, Experiment, Translation
from .jobs import Job
from .training import PACKAGE
from .variables import shell_words

TOP = PACKAGE.parent
# What data_prep/prepare_*.sh make; the data-bins come last.
PREPARED = (*SETTINGS, SWAPPED, SUBSETS)
CORPUS_VARIABLES = {
    "raw": "RAW",
    "seed": "CORPUS_SEED",
    "train_pairs": "TRAIN_PAIRS",
    "valid_pairs": "VALID_PAIRS",
    "test_pairs": "TEST_PAIRS",
    "nesting": "NESTING",
    "bpe_merges": "BPE_MERGES",
    "extrapolate_limit": "EXTRAPOLATE_LIMIT",
    "group_size": "GROUP_SIZE",
    "swapped_sample": "SWAPPED_SAMPLE",
    "max_pair_tokens": "MAX_TOKENS",
    "max_positions": "MAX_POSITIONS",
    "source_lang": "SOURCE_LANG",
    "target_lang": "TARGET_LANG",
}
SCRIPTS = {"folder": "prepare_corpus.sh"}
# Seconds on one core; only the ratios matter. RPE computes more than the others.
TOKENS_A_SECOND = {"rpe": 7500}
ANALYSIS_SECONDS = {"token-scores": 15, "speed": 20, "similarity": 10, "swap": 40}
ANALYSIS_TITLES = {
    "token-scores": "Score the gold tokens",
    "length-bleu": "Score by length",
    "curves": "Draw the learning curves",
    "speed": "Measure speed and memory",
    "similarity": "Compare shifted encoder states",
    "swap": "Translate swapped sentences",
}
COMPARE_SHAPE_WITH_APE = ("similarity", "token-scores")
NEED_APE = ("speed",)


def common_variables(gpus: int) -> dict[str, str]:
    """What all jobs have in their environment."""
    # PYTHONWARNINGS: deprecations inside fairseq, many of them.
    variables = {"PYTHON": sys.executable, "PYTHONUTF8": "1", "PYTHONWARNINGS": "ignore"}
    if not gpus:
        # Two small trainings use two cores better than one does.
        variables |= {"OMP_NUM_THREADS": "1", **training.KEEP_MEMORY}
    return variables


def job_environment(environment: Mapping[str, str], gpus: int) -> dict[str, str]:
    """What the jobs inherit: nothing that a person has set for other recipes."""
    recipes = {*training.VARIABLES, *evaluate.VARIABLES, *CORPUS_VARIABLES.values()}
    recipes |= {variable_of(option) for model in MODELS.values() for option in model.options}
    inherited = {name: value for name, value in environment.items() if name not in recipes}
    path = f"{TOP}{os.pathsep}{environment.get('PYTHONPATH', '')}".rstrip(os.pathsep)
    return inherited | {"PYTHONPATH": path} | common_variables(gpus)


class Plan:
    """The jobs of an experiment in a folder."""

    def __init__(self, experiment: Experiment, out: Path, gpus: int):
        self.experiment, self.out, self.gpus = experiment, out, gpus
        prepared = experiment.corpus.prepared
        self.data = prepared.resolve() if prepared else out / "data"
        self.jobs: list[Job] = []
        if not prepared:
            self._prepare()
        self._fill_cells()
        self._tune()
        self._analyse()
        self._report()

    def _add(self, name: str, title: str, command: list[object], products: list[Path], **options):
        log = self.out / "logs" / f"{name}.log"
        words = tuple(map(str, command))
        variables = {key: str(value) for key, value in options.pop("variables", {}).items()}
        options["needs"] = tuple(options.pop("needs", ()))
        if not options["needs"] and name != "corpus" and not self.experiment.corpus.prepared:
            options["needs"] = ("corpus",)
        self.jobs.append(
            Job(name, title, words, tuple(products), log, environment=variables, **options)
        )

    def _prepare(self) -> None:
        corpus = self.experiment.corpus
        script = SCRIPTS.get(corpus.kind, f"prepare_{corpus.kind}.sh")
        variables = {}
        for key, name in CORPUS_VARIABLES.items():
            value = getattr(corpus, key)
            if value is not None:
                variables[name] = Path(value).resolve() if key == "raw" else value
        self._add(
            "corpus",
            "Make the corpus and its settings",
            ["bash", TOP / "data_prep" / script, self.data],
            [self.data / name for name in PREPARED],
            variables=variables,
            weight=20,
        )

    # -- names -------------------------------------------------------------------------------------

    def cell(self, setting: str, model: str, seed: int, shift: int | None = None) -> str:
        """interpolate-shape-k60-seed1: a training, its folder and its result."""
        if model == "shape" and shift is None:
            shift = self.experiment.cell(setting).max_shift
        return result_name(setting, model, shift, seed).removesuffix(".json")

    def save(self, cell: str) -> Path:
        return self.out / "checkpoints" / cell

    def result(self, cell: str) -> Path:
        return self.out / "results" / f"{cell}.json"

    def average(self, setting: str, cell: str) -> Path:
        number = self.experiment.translation.average
        return self.save(cell) / average_name(number, self.experiment.updates(setting))

    # -- jobs --------------------------------------------------------------------------------------

    def _fill_cells(self) -> None:
        for setting in self.experiment.settings:
            for seed in self.experiment.seeds_of(setting):
                for model in self.experiment.models_of(setting):
                    self._fill_cell(setting, model, seed)

    def _fill_cell(self, setting: str, model: str, seed: int, shift: int | None = None) -> None:
        """Train a model, translate and score: one cell of the paper's table 2."""
        experiment, cell = self.experiment, self.cell(setting, model, seed, shift)
        parts, updates = experiment.cell(setting), experiment.updates(setting)
        options = experiment.training
        variables = {"DATA": self.data, "SAVE": self.save(cell), "SEED": seed, "GPUS": self.gpus}
        variables |= {"ARCH_SIZE": options.size, "UPDATES": updates}
        if options.batch_tokens:
            variables["BATCH_TOKENS"] = options.batch_tokens
        if options.max_tokens:
            variables["MAX_TOKENS"] = options.max_tokens
        if interval := experiment.save_every(setting):
            variables["SAVE_EVERY"] = interval
        for option in MODELS[model].options:
            value = getattr(parts, key_of(option))
            if value is not None:
                variables[variable_of(option)] = value
        if shift is not None:
            variables["MAX_SHIFT"] = shift
        variables["EXTRA"] = shlex.join(self._extra(setting))
        title = MODELS[model].title
        if shift is not None:
            title += f" (K={shift})"
        if len(experiment.seeds_of(setting)) > 1:
            title += f" (seed {seed})"
        tokens = updates * (options.batch_tokens or 112_000)
        self._add(
            f"train-{cell}",
            f"Train {title} on {setting.upper()}",
            ["bash", TOP / "recipes" / f"{setting}.sh", model],
            [self.save(cell) / COMPLETED_UPDATES],
            variables=variables,
            weight=10 + tokens / TOKENS_A_SECOND.get(model, 9000),
            gpus=self.gpus,
            updates=updates,
            updates_log=self.save(cell) / LOG,
        )
        translation = experiment.translation
        variables = {"DATA": self.data, "RESULTS": self.out / "results", "GPUS": min(self.gpus, 1)}
        variables |= {"AVERAGE": translation.average, "BEAM": translation.beam}
        variables |= {"LENPEN": translation.lenpen, "MAX_TOKENS": translation.max_tokens}
        if translation.subsets:
            variables["SUBSETS"] = " ".join(translation.subsets)
        if translation.lowercased_tokenized:
            variables["LOWERCASED_TOKENIZED"] = 1
        if translation.options:
            variables["GENERATE_EXTRA"] = shlex.join(shell_words(translation.options))
        self._add(
            f"evaluate-{cell}",
            f"Translate and score {title} on {setting.upper()}",
            ["bash", TOP / "recipes" / "evaluate.sh", self.save(cell)],
            [self.result(cell)],
            variables=variables,
            needs=[f"train-{cell}"],
            weight=20,
            gpus=min(self.gpus, 1),
        )

    def _extra(self, setting: str) -> list[str]:
        """Options of fairseq-train that the recipe does not have."""
        parts, options = self.experiment.cell(setting), self.experiment.training
        updates = self.experiment.updates(setting)
        extra = shell_words(options.options)
        average = self.experiment.translation.average
        if average > Translation.average:  # the recipes keep so many checkpoints
            extra += ["--keep-interval-updates", str(average)]
        if options.saves:
            # Small data has many short epochs: validate and save now and then, not after each.
            extra += f"--validate-interval {updates} --save-interval {updates}".split()
        if parts.falling_lr is not None:
            # A rate that falls to zero at the last update makes the most of a short training.
            extra += f"--lr-scheduler cosine --lr {parts.falling_lr:g}".split()
            extra += f"--warmup-updates {updates // 15}".split()
        return extra + shell_words(parts.options)

    def _tune(self) -> None:
        """Appendix B: which K has the best validation BLEU."""
        for setting in self.experiment.settings:
            seed = self.experiment.seeds_of(setting)[0]
            planned = {job.name for job in self.jobs}
            cells = []
            for shift in self.experiment.cell(setting).tune_shifts:
                cells.append(self.cell(setting, "shape", seed, shift))
                if f"train-{cells[-1]}" not in planned:
                    self._fill_cell(setting, "shape", seed, shift)
            if cells:
                output = self.out / "analysis" / setting / "max-shift.txt"
                command = [sys.executable, "-m", "shape_fairseq", "max-shift"]
                self._add(
                    f"max-shift-{setting}",
                    f"Choose SHAPE's K, {setting.upper()}",
                    [
                        "bash",
                        "-c",
                        'mkdir -p "$(dirname "$0")" && "$@" | tee "$0.partial"'
                        ' && mv "$0.partial" "$0"',
                        output,
                        *command,
                        *map(self.result, cells),
                    ],
                    [output],
                    needs=[f"evaluate-{cell}" for cell in cells],
                )

    def _analyse(self) -> None:
        for setting in self.experiment.settings:
            for name in ANALYSES:
                if name != "lengths" and self._suits(name, setting):
                    self._analyse_setting(name, setting)
        if "lengths" in self._names():
            self._add_analysis("lengths", "", ["--data", self.data], "Count the lengths", [])

    def _names(self) -> list[str]:
        names = self.experiment.analysis.names
        return list(ANALYSES) if names is None else names

    def _suits(self, name: str, setting: str) -> bool:
        """Whether an analysis is wanted and has the models that it compares."""
        models = self.experiment.models_of(setting)
        if name not in self._names() or setting == "scaling_nmt":
            return False
        if name in ("similarity", "swap") and setting != "interpolate":
            return False
        needed = {"ape", "shape"} if name in COMPARE_SHAPE_WITH_APE else set()
        needed |= {"ape"} if name in NEED_APE else set()
        lacking = needed.difference(models)
        if lacking and self.experiment.analysis.names is not None:
            raise UserError(
                f"analysis.names: {name} on {setting} needs the model {min(lacking)},"
                " which models does not have"
            )
        return not lacking

    def _analyse_setting(self, name: str, setting: str) -> None:
        """The models side by side: scores of all seeds, otherwise the first."""
        seeds, options = self.experiment.seeds_of(setting), self.experiment.analysis
        models = self.experiment.models_of(setting)
        if name in COMPARE_SHAPE_WITH_APE:
            models = [model for model in models if model in ("ape", "shape")]
        cells = {model: self.cell(setting, model, seeds[0]) for model in models}
        needed = list(cells.values())
        words: list[object]
        if name == "curves":
            words = [*map(self.save, needed)]
        elif name == "length-bleu":
            needed = [self.cell(setting, model, seed) for seed in seeds for model in models]
            words = [*map(self.result, needed)]
        else:
            words = [f"{model}={self.average(setting, cell)}" for model, cell in cells.items()]
        if name in ("speed", "similarity", "token-scores"):
            words += ["--setting", setting]
        if name == "speed":
            words += ["--turns", options.speed_turns]
        if name == "swap":
            words += ["--sequences", options.swapped_sequences]
            search = self.experiment.translation
            words += ["--beam", search.beam, "--lenpen", search.lenpen]
        if name == "similarity" and (k := self.experiment.cell(setting).max_shift):
            # The paper's offsets, 0, 100, 250 and 500, are for its K of 500.
            words += ["--offsets", *sorted({0, k // 5, k // 2, k})]
        if name != "curves":
            words += ["--data", self.data]
        kind = "train" if name == "curves" else "evaluate"
        needs = [f"{kind}-{cell}" for cell in needed]
        title = f"{ANALYSIS_TITLES[name]}, {setting.upper()}"
        self._add_analysis(name, setting, words, title, needs)

    def _add_analysis(
        self, name: str, setting: str, words: list[object], title: str, needs: list[str]
    ) -> None:
        folder = self.out / "analysis" / setting
        self._add(
            f"{name}-{setting}".rstrip("-"),
            title,
            [sys.executable, "-m", "shape_fairseq", name, *words, "--out", folder],
            [folder / f"{name}.json"],
            needs=needs,
            weight=ANALYSIS_SECONDS.get(name, 8),
            gpus=min(self.gpus, 1) if name not in ("curves", "length-bleu", "lengths") else 0,
        )

    def _report(self) -> None:
        """The report shows all that is there, so it comes last."""
        self._add(
            "report",
            "Write the report",
            [sys.executable, "-m", "shape_fairseq", "report", self.out],
            [self.out / "report.html"],
            needs=[job.name for job in self.jobs],
        )
