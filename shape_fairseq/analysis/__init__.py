"""The paper's figures and experiments, one file each: compute a result, write it, plot it."""
