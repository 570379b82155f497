"""The agent loop: chat rendering, tool-call parsing, token-exact records. No torch in here."""
