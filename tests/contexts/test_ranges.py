import pytest

from heddle.contexts import Range


@pytest.mark.parametrize("ends", [(3, 2), (-1, 2), (-2, -1), (0, -1)])
def test_crossed_or_negative_ends_are_refused(ends):
    with pytest.raises(ValueError, match=f"got start {ends[0]}, end {ends[1]}"):
        Range(*ends)


def test_bumps_move_one_end():
    window = Range(2, 5)
    window.bump_start(1)
    window.bump_end(-1)
    assert (window, len(window)) == (Range(3, 4), 1)
    window.bump_start(-3)
    assert window == Range(0, 4)


@pytest.mark.parametrize(("end", "amount"), [("start", 4), ("start", -3), ("end", -4)])
def test_a_bump_that_crosses_changes_nothing(end, amount):
    window = Range(2, 5)
    with pytest.raises(ValueError, match="wanted 0 <= start <= end"):
        getattr(window, f"bump_{end}")(amount)
    assert window == Range(2, 5)


def test_advance_empties():
    window = Range(2, 5)
    window.advance()
    assert (window, len(window), repr(window)) == (Range(5, 5), 0, "Range(5, 5)")
    assert window != (5, 5)
