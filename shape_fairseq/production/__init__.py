"""From a checkpoint to production: export and translation."""
