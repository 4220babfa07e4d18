"""Commands in containers: what each engine is told, which variables and cards a container gets, images."""
