"""How sure the choice is: joint draws, chances and turning points."""
