"""What to do next: pure decisions over plain values. No clock, disk, process or randomness."""
