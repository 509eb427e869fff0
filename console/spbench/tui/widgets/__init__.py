"""The widgets: tables and charts, drawn line by line, that know nothing of runs or suites."""
