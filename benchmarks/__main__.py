"""`make bench`: measure all models, on a GPU with what was estimated for it beside."""

from benchmarks import gpu_cost, speed
from shape_fairseq.errors import run

run(lambda: speed.main(estimate=gpu_cost.estimate_beside))
