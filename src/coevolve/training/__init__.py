"""Training engines and what they share."""

import os

# Threads that spin while they wait slow a busy machine down tenfold: environment workers need the cores
# in between. OpenMP reads this when torch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
