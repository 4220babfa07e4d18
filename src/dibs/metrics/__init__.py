"""The numbers that jobs report: their lines, the patterns that find them in logs, and bounded series of them."""
