"""The console in a browser: textual-serve behind a token, asking no outside host for anything."""
