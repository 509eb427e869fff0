"""Tables and charts, drawn line by line, that are independent of runs and suites."""
