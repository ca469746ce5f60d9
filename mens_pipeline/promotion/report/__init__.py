"""What models wrote and what was found of it, as one page for the people who maintain the language."""

from mens_pipeline.promotion.report.page import report_page

__all__ = ["report_page"]
