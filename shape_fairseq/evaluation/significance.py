"""Is a model better than APE? Paired bootstrap resampling, sacreBLEU's own."""

import json
from collections.abc import Iterator
from pathlib import Path

from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest

from ..command_line import Parser, positive
from ..errors import UserError
from . import results
from .results import Result, title_of

DEFAULT_SAMPLES = 1000


def compare(baseline: Result, others: list[Result], group: str, samples: int) -> list[dict]:
    """BLEU and p-value of each model against the baseline on all sentences of a group."""
    names = baseline.groups[group]
    for other in others:
        if other.references != baseline.references:
            raise UserError(
                f"{title_of(other)} and {title_of(baseline)} were scored on different texts"
            )

    def joined(texts: dict[str, list[str]]) -> list[str]:
        return [line for name in names for line in texts[name]]

    systems = [(title_of(result), joined(result.hypotheses)) for result in (baseline, *others)]
    test = PairedTest(
        systems, {"BLEU": BLEU()}, [joined(baseline.references)], "bs", n_samples=samples
    )
    signatures, scores = test()
    own = systems[0][1]
    return [
        {
            "setting": result.setting,
            "model": name,
            "seed": result.seed,
            "group": group,
            "bleu": score.score,
            # sacreBLEU's p-value of a system that equals the baseline is the smallest there is.
            "p_value": 1.0 if result is not baseline and texts == own else score.p_value,
            "signature": signatures["BLEU"].format(),
        }
        for result, (name, texts), score in zip(
            (baseline, *others), systems, scores["BLEU"], strict=True
        )
    ]


def compare_all(members: list[Result], samples: int) -> Iterator[dict]:
    """Each model against APE of the same data, setting, size and seed."""
    cells: dict[tuple, list[Result]] = {}
    for result in members:
        data = json.dumps(result.signature["data"], sort_keys=True)
        cells.setdefault((data, result.size, result.setting, result.seed), []).append(result)
    for (_, _, setting, seed), models in cells.items():
        baselines = [result for result in models if result.model == "ape"]
        others = [result for result in models if result.model != "ape"]
        if len(baselines) > 1:
            raise UserError(f"two results of APE on {setting} with seed {seed}: give one")
        if not baselines or not others:
            continue
        for group, names in baselines[0].groups.items():
            if all(name in result.hypotheses for name in names for result in models):
                yield from compare(baselines[0], others, group, samples)


def main(arguments: list[str]) -> None:
    """Compare each model with APE of the same setting and seed by paired bootstrap."""
    parser = Parser(
        prog="shape-fairseq significance",
        description=main.__doc__,
        example="runs/demo/results/*.json",
    )
    parser.add_argument("results", type=Path, nargs="+", help="result files of recipes/evaluate.sh")
    parser.add_argument(
        "--samples", type=positive, default=DEFAULT_SAMPLES, help="default: %(default)s"
    )
    parser.add_argument("--json", action="store_true", help="as JSON")
    args = parser.parse_args(arguments)
    rows = list(compare_all([results.read(path) for path in args.results], args.samples))
    if not rows:
        raise UserError(
            "nothing to compare: give results of APE and of another model, same setting and seed"
        )
    if args.json:
        print(json.dumps(rows, indent=1))
        return
    for row in rows:
        p_value = "baseline" if row["p_value"] is None else f"p = {row['p_value']:.4f}"
        what = f"{row['setting']} seed {row['seed']} {row['group']}: {row['model']}"
        print(f"{what} BLEU {row['bleu']:.2f}, {p_value}")
    print(rows[0]["signature"])
