"""The `dibs` command. Together with `compat` the only room that knows argv."""
