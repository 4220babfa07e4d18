"""HTTP: the server on the UNIX socket, the limits of a request, and the shape of errors."""
