"""The web page: its TCP listener, tokens, guard and built files."""
