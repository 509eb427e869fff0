"""The Suites page: files, the editor with its problems, the cases, and their commands."""
