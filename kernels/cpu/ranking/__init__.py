"""What finds the greatest elements of a row: the first one, so many, those that a sum reaches."""
