"""One option: its figures and the sections around them."""
