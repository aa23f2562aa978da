"""Products by panels of packed weights, on vectors.

`panels` goes through the tasks, `blocks` says what they are cut into, `vectors` multiplies along k,
in the registers of `tile`.
"""
