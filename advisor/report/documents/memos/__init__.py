"""The decision memo of every kind of answer."""
