"""Rows as pictures: a roofline and a bar chart, and the page that holds both."""

import resource
import xml.etree.ElementTree as ElementTree

import pytest

from heddle.pipelines.bench import judge, plot
from heddle.runtime.errors import InputError

MACHINE = {"cpu": "X", "cores": 2, "heddle": "0.1.0", "date": "2026-01-01"}


def row(**changes):
    """An exp at 80% of its memory's bandwidth."""
    made = {
        "name": "exp",
        "impl": "heddle",
        "dtype": "float32",
        "shape": {"m": 4096},
        "device": "cpu",
        "threads": 2,
        "cache": "cold",
        "status": "ok",
        "flags": [],
        "time_us": 1000.0,
        "bytes_read": 20_000_000,
        "bytes_written": 20_000_000,
        "operations": 80_000_000,
        "gb_s": 40.0,
        "gb_s_limit": 50.0,
        "gb_s_share": 0.8,
        "tflop_s": 0.08,
        "tflop_s_limit": 0.5,
        "tflop_s_share": 0.16,
        "bound": "memory",
        "turns_us": [1000.0] * 12,
        "environment": MACHINE,
    }
    return {**made, **changes}


def test_the_pictures_are_whole(tmp_path):
    made = [row(), row(name="<b>&", impl="numpy", time_us=2000.0, ratio=2.0)]
    made.append(row(name="copy", operations=0))
    paths = plot.save(made, tmp_path / "pictures")
    roof, bars = (ElementTree.parse(path).getroot() for path in paths[:2])
    svg = "{http://www.w3.org/2000/svg}"
    points = roof.findall(f"{svg}circle/{svg}title")
    assert {"heddle", "numpy"} <= {text.text for text in roof.iter(f"{svg}text")}
    assert [point.text.split(":")[0] for point in points] == ["heddle", "numpy"]
    texts = [text.text for text in roof.iter(f"{svg}text")]
    assert {"Roofline", "500 GFLOP/s", "50 GB/s"} <= set(texts)
    assert "80%, 1000 us" in [text.text for text in bars.iter(f"{svg}text")]
    page = paths[2].read_text()
    assert page.count("<svg") == 2
    assert "&lt;b&gt;&amp;" in page
    assert "<b>" not in page
    assert "<script" not in page
    assert "href=" not in page


def test_labels_of_nearly_equal_lines_do_not_meet():
    chart = plot.Chart("", (0.1, 1000), (1, 1000), "", "")
    for height in (265, 266, 267, 268, 269, 270, 271):
        chart.line((1, height), (1000, height), f"{height} GFLOP/s")
    chart.line((0.1, 1), (1, 10), "10 GB/s")
    boxes = chart.labels
    assert 3 <= len(boxes) < 8
    for number, (left, top, right, bottom) in enumerate(boxes):
        for other in boxes[:number]:
            assert right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top
    text = chart.render()
    assert text.count("</title></line>") == 8
    assert text.count("</text>") - plot.Chart("", chart.x, chart.y, "", "").render().count(
        "</text>"
    ) == len(boxes)


def test_bars_without_limits_are_shares_of_the_fastest():
    fast, slow = row(), row(impl="numpy", time_us=4000.0)
    del fast["bound"]
    text = plot.bar_chart([fast, slow])
    assert "Share of the fastest" in text
    assert "25%, 4000 us" in text


def test_the_height_of_a_point_is_its_rate():
    chart = plot.Chart("", (1, 100), (1, 100), "", "")
    assert chart.at(1, 1) == (80, 460)
    assert chart.at(100, 100) == (840, 40)
    assert chart.at(10, 10) == (460, 250)
    assert chart.at(1e9, 0) == (840, 460)


def test_nothing_to_draw(tmp_path):
    failed = {**row(), "status": "error"}
    del failed["time_us"]
    wrong = row(name="log", status="wrong")
    message = "plot: wanted rows with times of right results, found none"
    with pytest.raises(InputError, match=message):
        plot.save([failed, wrong], tmp_path)


def test_pictures_that_a_full_disk_refuses_are_as_they_were_and_named(tmp_path):
    roof, *_ = plot.save([row()], tmp_path)
    before = roof.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, hard))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            plot.save([row(name="log")], tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.filename == roof
    assert roof.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 3


def test_what_is_wrong_is_no_point(tmp_path):
    roof, chart, page = plot.save([row(), row(name="log", status="wrong")], tmp_path)
    assert "exp" in roof.read_text()
    assert "log" not in roof.read_text() + chart.read_text()
    assert "<td>wrong</td>" in page.read_text()


def test_rows_that_nothing_limits_have_points(tmp_path):
    bare = row()
    for name in ("gb_s", "gb_s_limit", "gb_s_share", "tflop_s", "tflop_s_limit", "bound"):
        del bare[name]
    rated = judge.judged(bare, None, [])
    assert (rated["gb_s"], rated["tflop_s"]) == (40.0, 0.08)
    roof, *_ = plot.save([rated, {**rated, "name": "log", "bytes_read": 0}], tmp_path)
    assert "80.0 GFLOP/s" in roof.read_text()
    plot.roofline([{**rated, "bytes_read": 0, "bytes_written": 0}])


def test_the_page_names_every_machine(tmp_path):
    other = {**MACHINE, "cpu": "Y", "date": "2026-01-03"}
    *_, page = plot.save([row(), row(name="log", environment=other)], tmp_path)
    assert "X, 2 cores, heddle 0.1.0; Y, 2 cores, heddle 0.1.0; 2026-01-01 to 2026-01-03" in (
        page.read_text()
    )
