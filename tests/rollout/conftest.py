"""Puts this folder on the path, so that tests share ``rollout_support.py``."""
