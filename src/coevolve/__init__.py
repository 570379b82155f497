"""CoEvolve: agent-data mutual evolution (arXiv 2604.15840)."""
