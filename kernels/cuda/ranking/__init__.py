"""What finds the greatest elements of a row: in passes over it, and by a histogram."""
