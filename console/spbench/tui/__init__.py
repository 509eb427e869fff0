"""The TUI: pages over the run state that the headless output shows too."""
