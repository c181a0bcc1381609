#!/usr/bin/env bash
# The paper's experiments on real data, Multi30k: shape-fairseq experiment recipes/multi30k.toml
#
#   bash recipes/multi30k.sh [OUT] [OPTION...]      OUT: runs/multi30k; --help shows the options
#   Example: bash recipes/multi30k.sh runs/again --dry-run

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
experiment "$RECIPES/multi30k.toml" "$@"
