# What all recipes share; sourced, not run.
#
# A recipe sets what is special about it and calls `train SETTING MODEL`. The environment variables
# that a user may set are listed in each recipe's header and in docs/reproduce.md.
set -euo pipefail

RECIPES=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
TOP=$(cd "$RECIPES/.." && pwd)
export PYTHONPATH="$TOP${PYTHONPATH:+:$PYTHONPATH}"
# fairseq opens some of its files with the terminal's encoding.
export PYTHONUTF8=1
PYTHON=${PYTHON:-python}
DRY_RUN=${DRY_RUN:-}

log() { printf '[%s] %s\n' "$(date +%T)" "$*" >&2; }

fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# Print a command as one that can be pasted, and run it unless this is a dry run.
run() {
  if [[ -n $DRY_RUN ]]; then
    printf '%q ' "$@"
    printf '\n'
  else
    "$@"
  fi
}

shape_fairseq() { "$PYTHON" -m shape_fairseq "$@"; }

# arguments COUNT "$@": the header of a script is its help.
arguments() {
  if [[ $# -ne $(($1 + 1)) || ${2:-} == -* ]]; then
    sed -n '2,/^$/s/^# \{0,1\}//p' "$0"
    if [[ ${2:-} == -h || ${2:-} == --help ]]; then exit 0; else exit 2; fi
  fi
}

# Found without importing: importing takes seconds.
has_module() {
  "$PYTHON" -c 'import sys, importlib.util as u; sys.exit(u.find_spec(sys.argv[1]) is None)' "$1"
}

command_path() {
  command -v "$1" || fail "$1 is not on PATH: install the project and activate its environment"
}

# positive_integer NAME ...: the variables of these names hold whole numbers of at least 1.
positive_integer() {
  local name
  for name in "$@"; do
    [[ ${!name} =~ ^[1-9][0-9]*$ ]] ||
      fail "$name must be a whole number of at least 1, not '${!name}'"
  done
}

# check_data SETTING: DATA is a folder that data_prep made, with a data-bin of this setting.
check_data() {
  [[ -n ${DATA:-} ]] || fail "set DATA to the folder that data_prep/prepare_*.sh made"
  [[ -d $DATA ]] || fail "the data folder $DATA is missing: make it with data_prep/prepare_*.sh"
  [[ -e $DATA/$1/train.en-de.en.idx && -e $DATA/parameters.txt && -e $DATA/dict.txt ]] ||
    fail "$DATA has no complete data-bin $1: run data_prep/prepare_*.sh on it again"
}

# Tells one data set from another, wherever its folder is.
data_hash() { cat "$DATA/parameters.txt" "$DATA/dict.txt" | sha256sum | cut -c 1-16; }

# How many processes share a batch: GPUS on each of NODES, or CPU_RANKS where there is no GPU.
count_ranks() {
  local present=0
  [[ ${GPUS:-0} =~ ^(0|[1-9][0-9]*)$ ]] || fail "GPUS must be a whole number, not '$GPUS'"
  if [[ -z ${GPUS:-} || ($GPUS -gt 0 && -z $DRY_RUN) ]]; then
    present=$("$PYTHON" -c 'import torch; print(torch.cuda.device_count())') ||
      fail "$PYTHON cannot import torch: install the project and activate its environment"
    GPUS=${GPUS:-$present}
    ((GPUS <= present)) || fail "GPUS=$GPUS, but this machine has $present"
  fi
  NODES=${NODES:-1}
  CPU_RANKS=${CPU_RANKS:-1}
  positive_integer NODES CPU_RANKS
  RANKS_PER_NODE=$((GPUS > 0 ? GPUS : CPU_RANKS))
  RANKS=$((RANKS_PER_NODE * NODES))
}

# The number of batches that one update adds up, so that it sees BATCH_TOKENS on any machine.
count_update_freq() {
  local share=$((RANKS * MAX_TOKENS))
  if ((BATCH_TOKENS % share)); then
    fail "$RANKS GPUs with MAX_TOKENS=$MAX_TOKENS do not divide a batch of $BATCH_TOKENS tokens:" \
      "choose GPUS and MAX_TOKENS so that their product does"
  fi
  UPDATE_FREQ=$((BATCH_TOKENS / share))
}

# remember NAME=VALUE ...: one SAVE holds the training of one model; a rerun resumes it.
remember() {
  local file=$SAVE/recipe.txt
  if [[ ! -e $file ]]; then
    [[ ! -e $SAVE/checkpoint_last.pt ]] ||
      fail "$SAVE holds checkpoints of another training: choose another SAVE"
    printf '%s\n' "$@" >"$file.partial"
    mv "$file.partial" "$file"
  elif ! diff -q "$file" <(printf '%s\n' "$@") >/dev/null; then
    fail "$SAVE was trained with $(paste -sd' ' "$file"): use these or choose another SAVE"
  fi
}

# The numbers of table 4. Tiny is for a look on a CPU and changes no more than it must.
choose_size() {
  case ${ARCH_SIZE:=base} in
    base)
      SIZE_SUFFIX=_wmt_en_de
      BATCH_TOKENS=${BATCH_TOKENS:-112000}
      MAX_TOKENS=${MAX_TOKENS:-3500}
      UPDATES=${UPDATES:-200000}
      SAVE_EVERY=${SAVE_EVERY:-5000}
      WARMUP=8000
      # Noam's peak: factor * d^-0.5 * warm-up^-0.5 with factor 2 and d = 512.
      LR=$(awk "BEGIN { printf \"%.6g\", 2 / sqrt(512 * $WARMUP) }")
      ;;
    tiny)
      SIZE_SUFFIX=_tiny
      BATCH_TOKENS=${BATCH_TOKENS:-4000}
      MAX_TOKENS=${MAX_TOKENS:-4000}
      UPDATES=${UPDATES:-500}
      SAVE_EVERY=${SAVE_EVERY:-$((UPDATES >= 10 ? UPDATES / 10 : 1))}
      WARMUP=100
      LR=0.003
      ;;
    *) fail "ARCH_SIZE must be base or tiny, not '$ARCH_SIZE'" ;;
  esac
  WARMUP_INIT_LR=0
  ADAM_EPS=1e-8
  # OpenNMT-py, with which the paper's models were trained, has one dropout for all three places.
  DROPOUT=(--dropout 0.1 --attention-dropout 0.1 --activation-dropout 0.1)
}

choose_model() {
  case $1 in
    ape) MODEL_OPTIONS=(--arch "transformer$SIZE_SUFFIX") ;;
    shape) MODEL_OPTIONS=(--arch "transformer_shape$SIZE_SUFFIX" --max-shift "$MAX_SHIFT") ;;
    rpe) MODEL_OPTIONS=(--arch "transformer_rpe$SIZE_SUFFIX" --max-relative-distance 16) ;;
    *) fail "unknown model '$1': choose ape, shape or rpe" ;;
  esac
}

# Ten joined sentences are longer than the 1,024 positions that fairseq allows by default.
choose_setting() {
  DATA_SETTING=$1
  SETTING_OPTIONS=()
  case $1 in
    interpolate) SETTING_OPTIONS=(--max-source-positions 4096 --max-target-positions 4096) ;;
    scaling_nmt) DATA_SETTING=vanilla ;;
  esac
}

# The device, how the ranks are started, and the precision: fp16 on GPUs, fp32 on the CPU.
choose_launcher() {
  local fairseq_train
  fairseq_train=$(command_path fairseq-train)
  LAUNCHER=("$fairseq_train")
  DEVICE_OPTIONS=()
  if ((GPUS == 0)); then DEVICE_OPTIONS+=(--cpu --distributed-backend gloo); fi
  if ((NODES > 1 || (GPUS == 0 && RANKS > 1))); then
    local address=${MASTER_ADDR:-127.0.0.1}
    ((NODES == 1)) || [[ -n ${MASTER_ADDR:-} && -n ${NODE_RANK:-} ]] ||
      fail "with NODES=$NODES set MASTER_ADDR to the first node's address and NODE_RANK to 0, 1, ..."
    LAUNCHER=(
      "$(command_path torchrun)" --nnodes "$NODES" --node_rank "${NODE_RANK:-0}"
      --master_addr "$address" --master_port "${MASTER_PORT:-29500}"
      --nproc_per_node "$RANKS_PER_NODE" "$fairseq_train"
    )
  fi
  DEVICE_OPTIONS+=(--distributed-world-size "$RANKS" --ddp-backend pytorch_ddp)
  case ${FP16:=$((GPUS > 0))} in
    0) ;;
    1)
      DEVICE_OPTIONS+=(--fp16)
      if ((GPUS == 0)); then DEVICE_OPTIONS+=(--fp16-no-flatten-grads); fi
      ;;
    *) fail "FP16 must be 0 or 1, not '$FP16'" ;;
  esac
}

choose_learning_curves() {
  TENSORBOARD=()
  if has_module tensorboard || has_module tensorboardX; then
    TENSORBOARD=(--tensorboard-logdir "$SAVE/tensorboard")
  else
    log "no TensorBoard logs: pip install tensorboardX, and run this again to resume with them"
  fi
}

# train SETTING MODEL: train one cell of the paper's tables, or go on where it stopped.
train() {
  local setting=$1 model=$2
  MAX_SHIFT=${MAX_SHIFT:-500}
  SEED=${SEED:-1}
  choose_model "$model"
  choose_setting "$setting"
  positive_integer BATCH_TOKENS MAX_TOKENS UPDATES SAVE_EVERY SEED
  [[ $MAX_SHIFT =~ ^[0-9]+$ ]] || fail "MAX_SHIFT must be a whole number, not '$MAX_SHIFT'"
  check_data "$DATA_SETTING"
  local extra
  read -ra extra <<<"${EXTRA:-}"
  count_ranks
  count_update_freq
  SAVE=${SAVE:-checkpoints/$setting-$model-seed$SEED}
  choose_launcher
  choose_learning_curves
  local completed=$SAVE/completed_updates.txt first_node=$((${NODE_RANK:-0} == 0))
  if [[ -e $completed && $(<"$completed") -ge $UPDATES && -z $DRY_RUN ]]; then
    log "$SAVE: all $UPDATES updates are done"
    return
  fi
  if [[ -z $DRY_RUN && $first_node -eq 1 ]]; then
    mkdir -p "$SAVE" || fail "cannot create the folder $SAVE"
    # The processes of the training inherit this lock, so it lasts until the last of them has ended.
    exec 9>"$SAVE/.lock"
    flock --nonblock 9 || fail "another training is still running in $SAVE"
    remember SETTING="$setting" MODEL="$model" ARCH_SIZE="$ARCH_SIZE" SEED="$SEED" \
      MAX_SHIFT="$([[ $model != shape ]] || echo "$MAX_SHIFT")" BATCH_TOKENS="$BATCH_TOKENS" \
      DATA_HASH="$(data_hash)" EXTRA="${extra[*]}"
    write_hardware
  fi
  run "${LAUNCHER[@]}" "$DATA/$DATA_SETTING" --user-dir "$TOP/shape_fairseq" \
    --task translation --source-lang en --target-lang de \
    "${MODEL_OPTIONS[@]}" --share-all-embeddings "${SETTING_OPTIONS[@]}" "${DROPOUT[@]}" \
    --optimizer adam --adam-betas '(0.9, 0.98)' --adam-eps "$ADAM_EPS" --weight-decay 0.0 \
    --clip-norm 0.0 --lr-scheduler inverse_sqrt --lr "$LR" \
    --warmup-updates "$WARMUP" --warmup-init-lr "$WARMUP_INIT_LR" \
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
    --max-tokens "$MAX_TOKENS" --update-freq "$UPDATE_FREQ" --max-update "$UPDATES" \
    --required-batch-size-multiple 1 --seed "$SEED" "${DEVICE_OPTIONS[@]}" \
    --save-dir "$SAVE" --save-interval-updates "$SAVE_EVERY" --keep-interval-updates 10 \
    --no-epoch-checkpoints --num-workers 2 --log-interval 100 --log-file "$SAVE/train.log" \
    "${TENSORBOARD[@]}" "${extra[@]}"
  if [[ -z $DRY_RUN && $first_node -eq 1 ]]; then
    printf '%s\n' "$UPDATES" >"$completed.partial"
    mv "$completed.partial" "$completed"
    log "$SAVE: trained for $UPDATES updates; next: bash recipes/evaluate.sh $SAVE"
  fi
}

# What the training runs on, for the table of training times.
write_hardware() {
  local name
  if ((GPUS > 0)); then
    name=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1 || true)
    name="$RANKS x ${name:-GPU}"
  else
    name="CPU, $RANKS process$( ((RANKS == 1)) || echo es)"
  fi
  printf '%s\n' "$name" >"$SAVE/hardware.txt"
}
