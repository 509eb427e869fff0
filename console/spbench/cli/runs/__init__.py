"""Commands that run suites, their live views and their tables of cases."""
