"""The typed sections of one option."""
