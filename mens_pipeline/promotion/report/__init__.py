"""Models side by side: figures, differences and completions, for people."""

from mens_pipeline.promotion.report.page import report_page

__all__ = ["report_page"]
