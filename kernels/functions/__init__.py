"""Elementary functions of vectors, as polynomials and steps that every target has.

`vector_math` has exp, log, tanh and erf, with their greatest errors; the others build on it.
"""
