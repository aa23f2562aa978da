"""The compiler's passes, one to a file: each changes a module in place for one kind of target."""
