"""The queue behind a UNIX socket: HTTP in, engine and store behind it."""
