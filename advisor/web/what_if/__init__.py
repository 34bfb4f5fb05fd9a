"""What-if questions and the live estimate."""
