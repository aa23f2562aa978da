"""The forms in which one op is written out in others, for `recognize`: a file for each family."""
