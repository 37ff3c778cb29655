"""A webhook receiver to develop against: verifies each request, drops duplicates, and prints what it gets. `run --help`."""
