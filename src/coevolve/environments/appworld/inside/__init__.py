"""What runs in AppWorld's own virtual environment, and imports nothing of CoEvolve."""
