import numpy as np
import pytest

from heddle.contexts import EOSTracker


def test_empty_endings_are_refused():
    with pytest.raises(ValueError, match="sequences of at least one token"):
        EOSTracker(eos_sequences=[[1], []])
    with pytest.raises(ValueError, match="stop strings with text"):
        EOSTracker(eos_stop_strings=["a", ""])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("END", "EOSTracker: wanted a list of stop strings, got 'END'"),
        ([b"END"], "EOSTracker: wanted stop strings with text, got b'END'"),
        (["a", 5], "EOSTracker: wanted stop strings with text, got 5"),
    ],
)
def test_stop_strings_are_a_list_of_texts(given, message):
    """One text is no list of its letters."""
    with pytest.raises(ValueError, match=f"^{message}$"):
        EOSTracker(eos_stop_strings=given)


def test_what_it_gives_away_are_copies():
    tracker = EOSTracker({1}, [[2, 3]], ["x"])
    tracker.eos_token_ids.add(9)
    tracker.eos_sequences[0].append(9)
    tracker.eos_stop_strings.append("y")
    assert (tracker.eos_token_ids, tracker.eos_sequences) == ({1}, [[2, 3]])
    assert tracker.eos_stop_strings == ["x"]
    with pytest.raises(AttributeError):
        tracker.eos_token_ids = {2}


def test_a_token_or_a_run_at_the_end_ends():
    tracker = EOSTracker({0}, [[8, 9]])
    assert tracker.is_eos_from_tokens([5, 0])
    assert not tracker.is_eos_from_tokens([0, 5])
    assert tracker.is_eos_from_tokens(np.array([5, 8, 9]))
    assert not tracker.is_eos_from_tokens([9])
    with pytest.raises(ValueError, match="at least one generated token"):
        tracker.is_eos_from_tokens([])


def test_first_eos_offset_counts_in_the_new_tokens():
    tracker = EOSTracker({0}, [[8, 9]])
    assert tracker.first_eos_offset([7, 8], [9, 0]) == 0
    assert tracker.first_eos_offset([0], [5, 0, 0]) == 1
    assert tracker.first_eos_offset([0], [5, 6]) is None


def test_stop_strings_are_found_across_chunks_and_early_in_long_ones():
    tracker = EOSTracker(eos_stop_strings=["STOP", "END"])
    assert tracker.is_eos_from_string("some ST") is None
    assert tracker.is_eos_from_string("OP and much more text after it") == "STOP"
    assert tracker.is_eos_from_string("x END, long after " + "y" * 99) == "END"
    assert tracker.is_eos_from_string("OP") is None


def test_what_follows_a_stop_string_is_looked_at_next():
    tracker = EOSTracker(eos_stop_strings=["ab", "bc"])
    assert tracker.is_eos_from_string("xabbcab") == "ab"
    assert tracker.tail == "bcab"
    assert [tracker.is_eos_from_string("") for _ in range(3)] == ["bc", "ab", None]
    assert tracker.tail == ""


def test_where_a_stop_string_may_have_begun():
    tracker = EOSTracker(eos_stop_strings=["END", "E."])
    found = []
    for character in "aENEbENx":
        assert tracker.is_eos_from_string(character) is None
        found.append(tracker.begun())
    assert found == [0, 1, 2, 1, 0, 1, 2, 0]
    assert tracker.is_eos_from_string("E.E") == "E."
    assert tracker.begun() == 1
    assert EOSTracker().begun() == 0


def test_the_stop_string_that_occurs_first_wins():
    assert EOSTracker(eos_stop_strings=["b", "ab"]).is_eos_from_string("zab") == "ab"
    assert EOSTracker(eos_stop_strings=["ab", "a"]).is_eos_from_string("zab") == "ab"
    assert EOSTracker(eos_stop_strings=["a", "ab"]).is_eos_from_string("zab") == "a"
    assert EOSTracker().is_eos_from_string("zab") is None


def test_equality_and_repr():
    assert EOSTracker({1}) == EOSTracker([1])
    assert EOSTracker({1}) != EOSTracker({2})
    assert EOSTracker() != 1
    assert "eos_token_ids=[1]" in repr(EOSTracker({1}))


@pytest.mark.parametrize("token", [-1, 1 << 31])
def test_tokens_of_no_vocabulary_are_refused(token):
    wanted = rf"^EOSTracker: wanted tokens from 0 to 2\*\*31 - 1, got {token}$"
    for endings in (([token],), ((), [[1, token]])):
        with pytest.raises(ValueError, match=wanted):
            EOSTracker(*endings)
    assert EOSTracker([(1 << 31) - 1]).eos_token_ids == {(1 << 31) - 1}
