"""Report of an evaluation as one HTML page for the maintainers of the language."""

from mens_pipeline.promotion.report.page import report_page

__all__ = ["report_page"]
