"""The Suites page: suite files, the editor with its problems, cases and commands."""
