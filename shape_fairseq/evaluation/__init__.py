"""From checkpoints to the paper's tables: averaging, scoring, significance, tables."""
