"""What the front end says of a workspace."""

from mens_pipeline.corpus.extract.source_report import RejectedFile, report_sources
from mens_pipeline.corpus.schema.shares import share_text


def test_verdicts_and_constructs_are_counted() -> None:
    """Accepted, rejected with a reason, and each construct over the accepted files."""
    report = report_sources(
        [
            ("a.vox", b"fn f() { }\nworkflow W() { }\n"),
            ("b.vox", b"fn g() { }\n\nx\n"),
            ("c.vox.ui", b"state n = 0\n"),
            ("d.vox", b"\xff"),
            ("e.vox", None),
        ]
    )

    assert (report.num_files, report.num_accepted, report.num_bytes, report.parse_rate) == (5, 2, 55, 0.4)
    assert report.rejected == (
        RejectedFile("b.vox", 3, "expected-declaration", "expected a declaration, found identifier `x`"),
        RejectedFile("d.vox", 1, "invalid-utf8", "byte 0xFF is not UTF-8: invalid start byte"),
        RejectedFile("e.vox", 1, "unreadable", "the file cannot be read"),
    )
    assert {name for name, count in report.constructs.items() if count} == {"function", "workflow", "reactive_module"}
    assert len(report.missing_constructs) == len(report.constructs) - 3


def test_no_files_have_no_rate() -> None:
    """A rate over nothing is missing, not 0 and not 1."""
    assert report_sources([]).parse_rate is None


def test_counts_read_as_a_share() -> None:
    """Numerator, denominator, per cent; nothing to divide by shows no share."""
    assert share_text(37, 40) == "37/40 (92.5 %)"
    assert share_text(0, 0) == "0/0"
