"""The other side of the daemon's API: the standard library only, because people's own programs import it."""
