"""Layer profiles: a model's layers measured one by one, by the benchmark `model.profile`."""
