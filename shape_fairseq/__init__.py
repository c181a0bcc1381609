"""Position representations for the Transformer of fairseq: use --user-dir shape_fairseq."""
