"""How people write jobs down: line files, pipes, generators, JSON lines, sbatch scripts."""
