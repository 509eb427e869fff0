"""The form of a case: fields, their texts, the resulting draft, and a preview."""
