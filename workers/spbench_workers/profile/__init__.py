"""A model's layers, measured one by one in a row: the benchmark `model.profile`."""
