"""Models over many ranks: pipeline stages, spatial tiles and replicas, trained or inferred."""
