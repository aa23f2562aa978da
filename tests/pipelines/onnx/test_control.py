"""Loop and Scan, whose steps are built one behind the other."""

import numpy as np
import pytest
from onnx_texts import computed, imported

from heddle.runtime.errors import GraphError

RNG = np.random.default_rng(1)
X = RNG.standard_normal((3, 4), np.float32)

LOOP = """m (float[n, 4] x) => (float[n, 4] y, float[k, n, 4] all)
<int64 trips = {{{trips}}}, bool going = {{{going}}}, float[4] w = {{1.0, 2.0, 3.0, 4.0}}> {{
  y, all = Loop <body = step (int64 i, bool before, float[n, 4] a)
    => (bool after, float[n, 4] b, float[n, 4] c) <float[4] v = {{0.5, 0.25, 2.0, 1.0}}> {{
      number = Cast <to = 1> (i)
      scaled = Mul(a, v)
      moved = Add(scaled, number)
      b = Add(moved, w)
      c = Neg(b)
      {after}
  }}> (trips, going, x)
}}"""

GOES_ON = "after = Identity(before)"
ENDS_AT_TWO = "three = Constant <value_int = 2> () after = Less(i, three)"


@pytest.mark.parametrize("trips", [1, 2, 5])
@pytest.mark.parametrize("after", [GOES_ON, ENDS_AT_TWO])
def test_a_loop(trips, after):
    y, every = computed(LOOP.format(trips=trips, going=1, after=after), X)
    state, given = X, []
    for step in range(trips if after == GOES_ON else min(trips, 3)):
        state = state * np.float32([0.5, 0.25, 2, 1]) + step + np.float32([1, 2, 3, 4])
        given.append(-state)
    np.testing.assert_allclose(y, state, rtol=1e-6)
    np.testing.assert_allclose(every, np.stack(given), rtol=1e-6)


def test_the_numbers_of_a_body_are_held_once():
    """However often its steps are built."""
    text = LOOP.format(trips=5, going=1, after=GOES_ON)
    assert sorted(imported(text).weights) == ["v", "w"]


def test_a_loop_that_computes_sizes_is_no_part_of_the_graph():
    text = """m (float[1, 4] x) => (float[a, b] y)
    <int64 trips = {3}, bool going = {1}, int64[2] shape = {1, 4}> {
      sizes = Loop <body = step (int64 i, bool before, int64[2] s) => (bool after, int64[2] t)
        <int64[2] one = {1, 0}> { after = Identity(before) t = Add(s, one) }> (trips, going, shape)
      y = Expand(x, sizes)
    }"""
    np.testing.assert_array_equal(computed(text, X[:1])[0], np.repeat(X[:1], 4, 0))


@pytest.mark.parametrize(
    ("trips", "going", "after", "reason"),
    [
        (0, 1, GOES_ON, "at least one step"),
        (5, 0, GOES_ON, "at least one step"),
        (2000, 1, GOES_ON, "at most 1024 steps"),
        (
            5,
            1,
            "sum = ReduceSum <keepdims = 0> (b) zero = Constant <value_float = 0.0> () "
            "after = Less(zero, sum)",
            "Loop 'y': wanted the end known when the file is read, got what the model computes",
        ),
    ],
)
def test_loops_that_are_refused(trips, going, after, reason):
    with pytest.raises(GraphError, match=reason):
        imported(LOOP.format(trips=trips, going=going, after=after))


SCAN = """m (float[3, 4] x, float[2, 3] z, float[2] start)
  => (float[2] end, float[{first}] all, float[3, 4] more) {{
  end, all, more = Scan <num_scan_inputs = 2, scan_input_axes = [0, 1],
    scan_input_directions = [{back}, 0], scan_output_axes = [{axis}, 0],
    scan_output_directions = [0, {back}],
    body = step (float[2] s, float[4] a, float[2] b) => (float[2] t, float[2] u, float[4] v) {{
      mean = ReduceMean <keepdims = 0> (a)
      moved = Add(s, b)
      t = Mul(moved, mean)
      u = Neg(t)
      v = Exp(a)
    }}> (start, x, z)
}}"""


@pytest.mark.parametrize("back", [0, 1])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_scan(axis, back):
    """Along any axis, forwards and backwards."""
    z, start = RNG.standard_normal((2, 3), np.float32), np.ones(2, np.float32)
    first = "3, 2" if axis == 0 else "2, 3"
    text = SCAN.format(first=first, axis=axis, back=back)
    end, every, more = computed(text, X, z, start)
    state, given, powers = start, [], []
    for step in range(3):
        row = X[2 - step if back else step]
        state = (state + z[:, step]) * row.mean()
        given.append(-state)
        powers.append(np.exp(row))
    np.testing.assert_allclose(end, state, rtol=1e-5)
    np.testing.assert_allclose(every, np.stack(given, axis=axis), rtol=1e-5)
    np.testing.assert_allclose(more, np.stack(powers[::-1] if back else powers), rtol=1e-5)


def test_a_scan_of_unknown_length_is_refused():
    text = SCAN.format(first="3, 2", axis=0, back=0)
    with pytest.raises(GraphError, match=r"Scan 'end': wanted one known number of steps, got"):
        imported(text.replace("float[3, 4] x", "float[n, 4] x"))


LINEAR = """m (float[b, {tokens}, 8] q, float[b, {tokens}, 8] k, float[b, {tokens}, 8] v)
  => (float[b, t, 8] y) {{
    y, state = LinearAttention <q_num_heads = 2, kv_num_heads = 2, update_rule = "linear"> (q, k, v)
}}"""


def test_an_operator_that_is_defined_by_others_is_built_of_them():
    """Of a Scan over tokens here: each one's query by the sum of keys by values up to it."""
    q, k, v = RNG.standard_normal((3, 2, 5, 8), np.float32)
    (y,) = computed(LINEAR.format(tokens=5), q, k, v, opset=27)
    heads = [x.reshape(2, 5, 2, 4) for x in (q, k, v)]
    scores = np.tril(np.einsum("bshd,bthd->bhst", heads[0], heads[1])) / 2
    wanted = np.einsum("bhst,bthd->bshd", scores, heads[2]).reshape(2, 5, 8)
    np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-5)


def test_what_its_parts_cannot_be_built_of_is_named():
    with pytest.raises(GraphError, match=r"Scan .*: wanted one known number of steps, got"):
        imported(LINEAR.format(tokens="n"), opset=27)
