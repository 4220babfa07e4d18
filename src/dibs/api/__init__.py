"""dibs from Python: what `import dibs` offers, each part in a file of its own."""
