"""What exists: jobs, attempts, claims, GPUs, reasons. Pure values; nothing here touches the world."""
