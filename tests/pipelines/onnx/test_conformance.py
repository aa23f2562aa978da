"""What docs/onnx.md says of ONNX's own cases holds."""

import conformance


def test_the_page_says_which_cases_pass():
    found = list(conformance.outcomes())
    page = conformance.PAGE.read_text()
    assert conformance.generated(page, conformance.table(found)) == page, (
        "run tests/pipelines/onnx/conformance.py; these do not pass now: "
        + ", ".join(each.case for each in found if each.why)
    )
