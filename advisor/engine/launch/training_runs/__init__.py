"""Launch files of a training plan, one module per launcher."""
