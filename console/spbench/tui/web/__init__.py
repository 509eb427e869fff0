"""The console in a browser, served by textual-serve with a token."""
