"""What the form of a case looks like, and its help."""

from __future__ import annotations

HELP = """\
A case of a benchmark. An empty field has the default that it shows; one with several values is
swept: 64, 128, 256 or 64..1024 *2 or 1..9 +2. What is typed is checked at once, and beside it
stands the YAML that will be written. Up and down go from field to field, → takes a suggestion;
Ctrl+S writes the case into the text, where Ctrl+Z takes it back."""

SIZES: list[tuple[int, str]] | None = [(0, "-narrow"), (140, "-wide")]
"""From how many columns on the text stands beside the fields."""
CSS = """
CaseForm { background: $panel; }
CaseForm > #form {
    padding: 0 1; background: $panel;
    border: round $primary; border-title-color: $primary;
}
CaseForm #sides { height: 1fr; }
CaseForm.-narrow #sides { layout: vertical; }
CaseForm #fields { width: 3fr; height: 1fr; background: $panel; scrollbar-size: 0 1; }
CaseForm #outcome { width: 2fr; height: 1fr; }
CaseForm.-wide #outcome { border-left: solid $surface; padding-left: 1; }
CaseForm.-narrow #fields, CaseForm.-narrow #outcome { width: 1fr; }
CaseForm.-narrow #fields { height: 3fr; }
CaseForm.-narrow #outcome { height: 2fr; border-top: solid $surface; }
CaseForm .heading { color: $text-accent; text-style: bold; margin-top: 1; }
CaseForm .heading.first { margin-top: 0; }
CaseForm #hint { height: 2; color: $text-muted; }
CaseForm #words { height: auto; max-height: 6; text-style: bold; }
CaseForm #words.wrong { color: $text-error; }
CaseForm #buttons { height: 1; align-horizontal: right; }
CaseForm Button { margin-left: 2; }
CaseForm FormRow Input, CaseForm FormRow TextArea { border: none; background: $surface; }
CaseForm FormRow Input:focus, CaseForm FormRow TextArea:focus {
    border: none; background: $primary 25%;
}
"""
