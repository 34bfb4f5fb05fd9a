"""What comes after the verdict of an answer: its other sections, and the same question asked again."""
