"""How people write quantities and names: one grammar for the form, the workload file, the API and the command line."""
