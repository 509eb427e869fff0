"""Training over many ranks: tiles, stages, pipelines, precision, checkpoints, imported networks."""
