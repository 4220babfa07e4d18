"""The seed tools' command lines, as their documents say, over the same engine."""
