"""A private Slurm of one user, over ssh, on servers that are not joined. Root is not needed."""
