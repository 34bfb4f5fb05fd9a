"""Why hardware, frameworks and formats are not ranked, and what would change that."""
