"""Number formats of a model's arithmetic, from fp64 to int8."""
