"""Which texts make the next batch."""

from hypothesis import given
from hypothesis import strategies as st

from heddle.pipelines.serving.waiting import SHORT, Job, Waiting


def job(*lengths):
    return Job(lengths, lengths)


def batches(waiting):
    found = []
    while batch := waiting.next_batch():
        found.append([(job.rows[number], job) for job, number in batch])
    return found


def lengths(waiting):
    return [[length for length, _ in batch] for batch in batches(waiting)]


def filled(batch, tokens, *jobs):
    waiting = Waiting(batch, tokens)
    for each in jobs:
        waiting.add(each)
    return waiting


def test_requests_share_a_batch_and_take_turns():
    big, small = job(*[20] * 5), job(20)
    first, *rest = batches(filled(2, 1000, big, small))
    assert [owner for _, owner in first] == [big, small]
    assert [len(batch) for batch in rest] == [2, 2]


def test_each_request_begins_a_batch_in_its_turn():
    """Also one whose texts are of another length."""
    assert lengths(filled(2, 1000, job(*[100] * 6), job(20, 21))) == [
        [100, 100],
        [21, 20],
        [100, 100],
        [100, 100],
    ]


def test_texts_of_a_batch_are_of_similar_length():
    assert lengths(filled(8, 1000, job(100, 49, 50, 24, 5, 3, SHORT))) == [
        [100, 50],
        [49, 24],
        [SHORT, 5, 3],
    ]


def test_a_batch_has_so_many_tokens_with_padding():
    assert lengths(filled(8, 100, job(30, 30, 30, 30, 200))) == [[200], [30, 30, 30], [30]]


def test_a_request_that_is_gone_has_no_texts():
    gone, left = job(20, 20), job(20)
    waiting = filled(1, 1000, gone, left)
    waiting.next_batch()
    waiting.drop(gone)
    waiting.drop(gone)
    assert len(waiting) == 1
    assert batches(waiting) == [[(20, left)]]


@given(st.lists(st.lists(st.integers(1, 300), min_size=1, max_size=9), max_size=6))
def test_each_text_is_in_one_batch_within_bounds(requests):
    jobs = [job(*each) for each in requests]
    waiting = filled(4, 400, *jobs)
    seen = []
    while batch := waiting.next_batch():
        most = max(job.rows[number] for job, number in batch)
        assert len(batch) == 1 or (len(batch) <= 4 and len(batch) * most <= 400)
        seen += [(jobs.index(job), number) for job, number in batch]
    wanted = [(at, number) for at, each in enumerate(requests) for number in range(len(each))]
    assert sorted(seen) == wanted
