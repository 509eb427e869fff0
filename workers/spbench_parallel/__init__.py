"""Training over many ranks: tiles, pipelines, precision, imported networks."""
