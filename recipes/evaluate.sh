#!/usr/bin/env bash
# Evaluate a training: average its last 10 checkpoints, translate, score with sacreBLEU.
#
#   DATA=FOLDER bash recipes/evaluate.sh SAVE      SAVE: the folder of a training
#   Example: DATA=data bash recipes/evaluate.sh checkpoints/vanilla-shape-seed1
#
# Writes RESULTS/SETTING-MODEL[-kK]-seedSEED.json for `shape-fairseq tables RESULTS/*.json`. Run the
# same command again to go on after an interruption. Environment variables (with their defaults):
#   RESULTS=results      where the result file goes; none is ever overwritten
#   AVERAGE=10           checkpoints to average
#   BEAM=4  LENPEN=0.6   beam width of table 4; length penalty of fairseq's scaling_nmt page
#   SUBSETS              the test sets to translate (all of DATA's)
#   MAX_TOKENS=3500      tokens in a batch
#   GPUS                 0: the CPU (where no GPU is found)
#   GENERATE_EXTRA       more options for fairseq-generate; they win over the recipe's
#   LOWERCASED_TOKENIZED=1   also BLEU of lowercased tokens, as many papers report it
#   UNFINISHED=1         also a training that is not at its end; the result's name tells its updates
#   DRY_RUN=1            print the commands, run nothing

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
arguments 1 "$@"
exec "$PYTHON" -m shape_fairseq.experiment.evaluate "$1"
