"""Start the training of a recipe, or go on with it: devices, ranks, nodes, and what is noted.

    python -m shape_fairseq.experiment.training SETTING MODEL fairseq-train ...

The command is APE's with the paper's values, as it stands in recipes/SETTING.sh. The variables that
the recipe's header lists change it.
"""

import importlib.util
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from ..data_folder import LANGUAGES, check_data, data_hash, data_setting, languages
from ..errors import UserError, run
from ..evaluation.training_folder import (
    COMPLETED_UPDATES,
    HARDWARE,
    LOG,
    RECIPE,
    checkpoints,
    completed_updates,
    read_recipe,
)
from ..files import PARTIAL
from ..model_names import Model, model_named, variable_of
from .locking import lock_folder
from .variables import LARGEST_SEED, Variables

PACKAGE = Path(__file__).resolve().parents[1]
# A small model for a look on a CPU; it changes no more than it must.
TINY: dict[str, float] = {"--max-tokens": 4000, "--update-freq": 1, "--max-update": 500}
TINY |= {"--lr": 0.003, "--warmup-updates": 100}
FINETUNE = "--finetune-from-model"
# glibc shall keep freed memory: to fetch it anew for each step costs a CPU a tenth of its time.
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(16 << 30)}
# What a training and its evaluation leave. A person may have deleted the large files among it.
LEFT_BEHIND = ("checkpoint*.pt", "average-*.pt", COMPLETED_UPDATES, "generated/*/*")
# What a recipe reads from the environment, besides the options of the models.
VARIABLES = (
    *("DATA", "SAVE", "SEED", "UPDATES", "SAVE_EVERY", "BATCH_TOKENS", "MAX_TOKENS", "EXTRA"),
    *("ARCH_SIZE", "GPUS", "CPU_RANKS", "FP16", "NODES", "NODE_RANK", "MASTER_ADDR"),
    *("MASTER_PORT", "DRY_RUN"),
)


class Command:
    """The words of a command, of which the values of options can be changed."""

    def __init__(self, words: list[str]):
        self.words = list(words)

    def __getitem__(self, option: str) -> str:
        return self.words[self.words.index(option) + 1]

    def __setitem__(self, option: str, value: object) -> None:
        """Another value for an option; a new option comes after the architecture."""
        if option in self.words:
            self.words[self.words.index(option) + 1] = str(value)
        else:
            place = self.words.index("--arch") + 2
            self.words[place:place] = [option, str(value)]


class Ranks:
    """The processes that share a batch: GPUS on each of NODES, or CPU_RANKS without a GPU."""

    def __init__(self, variables: Variables, dry_run: bool):
        self.gpus = count_gpus(variables, dry_run)
        self.nodes = variables.whole_number("NODES", 1)
        self.node = variables.whole_number("NODE_RANK", None, minimum=0)
        self.on_a_node = self.gpus or variables.whole_number("CPU_RANKS", 1)
        self.number = self.on_a_node * self.nodes
        self.address = variables.text("MASTER_ADDR")
        self.port = variables.whole_number("MASTER_PORT", 29500)
        if self.nodes > 1 and (not self.address or self.node is None):
            raise UserError(
                f"with NODES={self.nodes} set MASTER_ADDR to the first node's address"
                " and NODE_RANK to 0, 1, ..."
            )

    @property
    def on_first_node(self) -> bool:
        return not self.node

    def launcher(self) -> list[str]:
        """What goes before fairseq-train where it does not start its ranks itself."""
        if self.nodes == 1 and (self.gpus or self.number == 1):
            return []
        options: dict[str, object] = {"--nnodes": self.nodes, "--node_rank": self.node or 0}
        options |= {"--master_addr": self.address or "127.0.0.1", "--master_port": self.port}
        options |= {"--nproc_per_node": self.on_a_node}
        words = [str(word) for pair in options.items() for word in pair]
        return [command_path("torchrun"), *words]

    def hardware(self) -> str:
        """What the training runs on, for the table of training times."""
        if not self.gpus:
            return f"CPU, {self.number} process{'' if self.number == 1 else 'es'}"
        try:
            query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
            names = subprocess.run(query, capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            names = ""
        return f"{self.number} x {names.partition(chr(10))[0] or 'GPU'}"


def count_gpus(variables: Variables, dry_run: bool = False) -> int:
    """GPUS, which this machine must have; all that it has where GPUS is not set."""
    wanted = variables.whole_number("GPUS", None, minimum=0)
    if wanted == 0 or (wanted and dry_run):
        return wanted
    # In a process of its own, because torch stays in memory.
    count = [sys.executable, "-c", "import torch; print(torch.cuda.device_count())"]
    result = subprocess.run(count, capture_output=True, text=True)
    if result.returncode:
        raise UserError(f"{sys.executable} cannot import torch: install the project (make setup)")
    present = int(result.stdout)
    if wanted and wanted > present:
        raise UserError(f"GPUS={wanted}, but this machine has {present}")
    return present if wanted is None else wanted


def command_path(name: str) -> str:
    """Where a command of this environment is."""
    beside = Path(sys.executable).with_name(name)
    path = str(beside) if beside.exists() else shutil.which(name)
    if not path:
        raise UserError(f"{name} is not on PATH: install the project and activate its environment")
    return path


class Training:
    """One training: its command, and what is remembered of it."""

    def __init__(self, setting: str, model: Model, literal: list[str], variables: Variables):
        self.setting, self.model = setting, model
        self.dry_run = variables.switch("DRY_RUN")
        self.size = variables.text("ARCH_SIZE", "base")
        self.seed = variables.whole_number("SEED", 1, maximum=LARGEST_SEED)
        self.extra = variables.words("EXTRA")
        self.data = data_folder(variables, "data" if self.dry_run else "")
        self.save = variables.folder("SAVE", f"checkpoints/{setting}-{model.name}-seed{self.seed}")
        self.options = {
            option: variables.like(default, variable_of(option))
            for option, default in model.options.items()
        }
        self.command = Command(literal)
        self._choose_size()
        self._choose_updates(variables)
        self.ranks = self._choose_batch(variables)
        if not self.dry_run:
            check_data(self.data, setting)
        self._choose_files()
        self._choose_devices(variables.switch("FP16", default=self.ranks.gpus > 0))

    def _choose_size(self) -> None:
        """The architecture of the model in this size."""
        if self.size not in ("base", "tiny"):
            raise UserError(f"ARCH_SIZE must be base or tiny, not '{self.size}'")
        suffix = "_wmt_en_de"
        if self.size == "tiny":
            suffix = "_tiny"
            for option, value in TINY.items():
                self.command[option] = value
        self.command["--arch"] = self.model.architecture + suffix
        for option, value in self.options.items():
            self.command[option] = value
        self.command["--seed"] = self.seed

    def _choose_updates(self, variables: Variables) -> None:
        self.updates = variables.whole_number("UPDATES", int(self.command["--max-update"]))
        self.command["--max-update"] = self.updates
        usual = int(self.command["--save-interval-updates"])
        if self.size == "tiny":
            usual = max(1, self.updates // 10)
        self.command["--save-interval-updates"] = variables.whole_number("SAVE_EVERY", usual)

    def _choose_batch(self, variables: Variables) -> Ranks:
        """An update sees as many tokens on any machine: the ranks share its batches."""
        max_tokens, update_freq = (
            int(self.command[option]) for option in ("--max-tokens", "--update-freq")
        )
        self.batch_tokens = variables.whole_number("BATCH_TOKENS", max_tokens * update_freq)
        max_tokens = variables.whole_number("MAX_TOKENS", max_tokens)
        ranks = Ranks(variables, self.dry_run)
        if self.batch_tokens % (ranks.number * max_tokens):
            raise UserError(
                f"{ranks.number} GPUs with MAX_TOKENS={max_tokens} do not divide a batch of"
                f" {self.batch_tokens} tokens: choose GPUS and MAX_TOKENS whose product does"
            )
        self.command["--max-tokens"] = max_tokens
        self.command["--update-freq"] = self.batch_tokens // (ranks.number * max_tokens)
        return ranks

    def _choose_files(self) -> None:
        self.command.words[:2] = [
            command_path("fairseq-train"),
            str(self.data / data_setting(self.setting)),
        ]
        self.command["--user-dir"] = PACKAGE
        # A dry run needs no data.
        known = not self.dry_run or self.data.is_dir()
        source, target = languages(self.data) if known else LANGUAGES
        self.command["--source-lang"], self.command["--target-lang"] = source, target
        self.command["--save-dir"] = self.save
        self.command["--log-file"] = self.save / LOG
        if any(importlib.util.find_spec(name) for name in ("tensorboard", "tensorboardX")):
            self.command["--tensorboard-logdir"] = self.save / "tensorboard"
        elif not self.dry_run:
            log("no TensorBoard logs: pip install tensorboardX, and run this again to resume")

    def _choose_devices(self, fp16: bool) -> None:
        """fp16 on GPUs, fp32 on the CPU."""
        words = self.command.words
        if not self.ranks.gpus:
            words.remove("--fp16")
            words += ["--cpu", "--distributed-backend", "gloo"]
            if fp16:
                words += ["--fp16", "--fp16-no-flatten-grads"]
        elif not fp16:
            words.remove("--fp16")
        self.command["--distributed-world-size"] = self.ranks.number

    def words(self) -> list[str]:
        """The whole command; what a person added comes last and wins."""
        return [*self.ranks.launcher(), *self.command.words, *self.extra]

    def recipe(self) -> dict[str, str]:
        """What tells this training from others, without what may change when it goes on."""
        record = {
            "SETTING": self.setting,
            "MODEL": self.model.name,
            "ARCH_SIZE": self.size,
            "SEED": self.seed,
            "MAX_SHIFT": self.options.get("--max-shift", ""),
            "BATCH_TOKENS": self.batch_tokens,
            "DATA_HASH": data_hash(self.data),
            "EXTRA": shlex.join(self.extra),
        }
        for option, value in self.options.items():
            if value != self.model.options[option]:
                record[variable_of(option)] = value
        if FINETUNE in self.command.words:
            record["FINETUNED_FROM"] = self.command[FINETUNE]
        return {name: str(value) for name, value in record.items()}

    def start(self) -> None:
        """Train, or go on where the training stopped, or find that all is done."""
        if self.dry_run:
            print(shlex.join(self.words()))
            return
        lock = None
        if self.ranks.on_first_node:
            lock = lock_folder(self.save, "another training")
        self._remember()
        if self._is_complete():
            log(f"{self.save}: all {self.updates} updates are done")
            return
        if self.ranks.on_first_node:
            (self.save / COMPLETED_UPDATES).unlink(missing_ok=True)
            write_lines(self.save / HARDWARE, self.ranks.hardware())
        # The processes of the training inherit the lock: it lasts until the last of them has ended.
        environment = dict(os.environ) if self.ranks.gpus else KEEP_MEMORY | os.environ
        inherited = [lock.fileno()] if lock else []
        status = run_to_end(self.words(), env=environment, pass_fds=inherited)
        if status:
            sys.exit(status if status > 0 else 128 - status)
        if self.ranks.on_first_node:
            self._note_completion()
            log(
                f"{self.save}: trained for {self.updates} updates;"
                f" next: bash recipes/evaluate.sh {self.save}"
            )

    def _remember(self) -> None:
        """One folder holds the training of one model; a rerun resumes it."""
        path, recipe = self.save / RECIPE, self.recipe()
        trained = any(any(self.save.glob(pattern)) for pattern in LEFT_BEHIND)
        if trained and not path.exists():
            raise UserError(
                f"{self.save} holds another training's checkpoints: choose another SAVE"
            )
        if trained and (remembered := read_recipe(self.save).values) != recipe:
            names = [*remembered, *(name for name in recipe if name not in remembered)]
            differences = [
                f"{name}={remembered.get(name, '')}"
                for name in names
                if remembered.get(name) != recipe.get(name)
            ]
            raise UserError(
                f"{self.save} was trained with {' '.join(differences)}:"
                " use this or choose another SAVE"
            )
        # As long as a training has left nothing, nothing is bound to what fairseq may refuse.
        if not trained and self.ranks.on_first_node:
            write_lines(path, *(f"{name}={value}" for name, value in recipe.items()))

    def _is_complete(self) -> bool:
        completed = completed_updates(self.save)
        if completed is None and any(self.save.glob("checkpoint*.pt")):
            # A kill may have come between the last checkpoint and the note; fairseq would go on.
            completed = updates_behind(self.save)
            if completed is not None and completed >= self.updates and self.ranks.on_first_node:
                self._note_completion()
        return completed is not None and completed >= self.updates

    def _note_completion(self) -> None:
        write_lines(self.save / COMPLETED_UPDATES, str(self.updates))


def updates_behind(save: Path) -> int | None:
    """The updates of the checkpoint that fairseq would go on from; none if it cannot be loaded."""
    # In a process of its own, because torch stays in memory.
    read = "import sys; from shape_fairseq.checkpoints import load; "
    read += "print(int(load(sys.argv[1])['optimizer_history'][-1]['num_updates']))"
    newest = list(checkpoints(save).values())[-1:]
    for path in [save / "checkpoint_last.pt", *newest]:
        command = [sys.executable, "-c", read, str(path)]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode == 0:
            return int(result.stdout)
    return None


def data_folder(variables: Variables, default: str = "") -> Path:
    """DATA, which a person must have set."""
    if not variables.text("DATA", default):
        raise UserError("set DATA to the folder that data_prep/prepare_*.sh made")
    return variables.folder("DATA", default)


def write_lines(path: Path, *lines: str) -> None:
    """Write a small text that is there as a whole or not at all."""
    partial = Path(f"{path}{PARTIAL}")
    partial.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    os.replace(partial, path)


def run_to_end(words: list[str], **options) -> int:
    """Run a command and pass on to it the signals that would end this process."""
    with subprocess.Popen(words, **options) as process:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda received, _: process.send_signal(received))
        return process.wait()


def log(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def adaptation(checkpoint: Path, literal: list[str], variables: Variables) -> Training:
    """The training that makes a SHAPE model of the APE model in a checkpoint."""
    if not checkpoint.is_file():
        raise UserError(f"the checkpoint {checkpoint} is missing")
    source = read_recipe(checkpoint.parent)
    if source.model != "ape":
        raise UserError(f"{checkpoint} is no APE model: its recipe.txt says {source.model}")
    command, given = Command(literal), dict(variables.environment)
    command[FINETUNE] = checkpoint
    schedule = {name: command[name] for name in ("--lr-scheduler", "--lr", "--warmup-updates")}
    batch = source.values.get("BATCH_TOKENS", "")
    seed = variables.whole_number("SEED", 1)
    usual = {"SAVE": f"checkpoints/adapt-{source.setting}-seed{seed}", "BATCH_TOKENS": batch}
    if source.size == "tiny":
        usual |= {"UPDATES": "400", "MAX_TOKENS": variables.text("BATCH_TOKENS", batch)}
        schedule |= {"--warmup-updates": "25"}
    # The options of the APE model make its size; this schedule comes after theirs.
    extra = Variables(source.values).words("EXTRA")
    extra += [word for pair in schedule.items() for word in pair] + variables.words("EXTRA")
    given = usual | {name: value for name, value in given.items() if value}
    given |= {"ARCH_SIZE": source.size, "EXTRA": shlex.join(extra)}
    return Training(source.setting, model_named("shape"), command.words, Variables(given))


def main() -> None:
    setting, model, *literal = sys.argv[1:]
    variables = Variables(os.environ)
    if setting == "adapt":
        adaptation(Path(model), literal, variables).start()
    else:
        Training(setting, model_named(model), literal, variables).start()


if __name__ == "__main__":
    run(main)
