"""The error of a baseline that is not there: a row of its own, and no failure of the run."""


class MissingError(Exception):
    """A baseline cannot be had here for this case; the message says why and what to do."""
