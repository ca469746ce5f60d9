"""Requirements of a task on a completion, checked on its syntax tree."""

from mens_pipeline.evaluation.requirements.parts import Part
from mens_pipeline.evaluation.requirements.requirement import Requirement, names_of, unmet

__all__ = ["Part", "Requirement", "names_of", "unmet"]
