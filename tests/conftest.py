"""The garbage collector looks at what tests make, not again and again at what stays.

With its defaults it takes a fifth of the time of tests that run in Python.
"""

import gc


def pytest_configure():
    gc.set_threshold(20_000)


def pytest_collection_finish():
    gc.collect()
    gc.freeze()
