"""Former names of modules that suites and recorded runs mention."""
