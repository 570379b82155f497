"""Puts this folder on the path, so that tests share ``keyvalue.py``, a small real environment."""
