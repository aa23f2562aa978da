"""What drafts get of a step: what nobody else needs."""

import numpy as np

from heddle.contexts import CacheBlocks, TextContext
from heddle.pipelines.generation.drafts import Drafts
from heddle.pipelines.generation.schedule import Running, Schedule


class Always(Drafts):
    """Proposes as many tokens as there may be."""

    def propose(self, context, most, tokens):
        return [1] * most


def schedule_of(*lengths, blocks=16, rows=4, tokens=64, most=1000):
    """A schedule in which prompts of so many tokens wait, and these."""
    schedule = Schedule(CacheBlocks(blocks, 4), rows, tokens, speculate=4)
    requests = []
    for number, length in enumerate(lengths):
        prompt = np.full(length, 10 + number, np.int64)
        context = TextContext(max_length=length + most, tokens=prompt, request_id=f"r{number}")
        requests.append(Running(context, text=None, drafts=Always()))
        schedule.add(requests[-1])
    return schedule, requests


def drafted(schedule):
    """How many draft tokens each request of the next step has."""
    return [len(running.draft) for running in schedule.next_step()]


def after_step(schedule, requests, right=0):
    for running in requests:
        for _ in range(1 + right):
            running.context.update(9)
        schedule.settle(running, len(running.draft), right)


def test_drafts_have_free_blocks_and_give_them_back():
    schedule, requests = schedule_of(7, 7, blocks=5)
    assert drafted(schedule) == [4, 1]  # the last free block, and the rest of the last own one
    assert schedule.blocks.free == 0
    after_step(schedule, requests)
    assert schedule.blocks.free == 1
    assert schedule.drafts == (5, 0)
    assert drafted(schedule) == [4, 0]
    after_step(schedule, requests[1:])
    after_step(schedule, requests[:1], right=4)
    assert schedule.drafts == (9, 4)
    assert schedule.blocks.free == 0
    state = requests[0].context.spec_decoding_state
    assert (state.proposed, state.accepted, state.draft_tokens) == (8, 4, [])


def test_who_must_run_comes_first():
    schedule, requests = schedule_of(7, 30, 3, tokens=16, rows=2)
    assert drafted(schedule) == [0, 0]  # a chunk of a prompt fills the step
    after_step(schedule, requests[:2])
    assert drafted(schedule) == [0, 0]
    after_step(schedule, requests[:2])
    assert drafted(schedule) == [4, 4]
    assert schedule.load.waiting == 1


def test_no_draft_goes_beyond_the_end_of_a_text():
    schedule, requests = schedule_of(7, most=3)
    assert drafted(schedule) == [2]
    after_step(schedule, requests, right=2)
    assert requests[0].context.is_done
    assert schedule.blocks.free == 16
    assert schedule.next_step() == []
