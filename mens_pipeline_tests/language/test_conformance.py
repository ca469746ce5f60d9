"""The front end and the reference compiler agree on every labelled program."""

from collections import Counter

from mens_pipeline.language import CONSTRUCTS, analyze, construct_of, histogram, mode_of
from mens_pipeline_tests.every import every
from mens_pipeline_tests.language.examples import Case, conformance_cases, golden_programs, parse, reference_examples


def _verdict(case: Case) -> tuple[bool, dict[str, int]]:
    module = analyze(case.source, case.mode).module
    return (True, histogram(module)) if module else (False, {})


def test_verdict_and_histogram_agree_on_all_conformance_cases() -> None:
    disagreements = [case.id for case in conformance_cases() if _verdict(case) != (case.ok, case.constructs)]

    assert (len(conformance_cases()), len(reference_examples())) == (3954, 362)
    assert disagreements == []


@every("case", reference_examples(), ids=lambda case: case.id)
def test_verdict_and_histogram_agree_on_reference_example(case: Case) -> None:
    assert _verdict(case) == (case.ok, case.constructs)


def test_every_golden_program_is_accepted() -> None:
    rejected = [name for name, source in golden_programs().items() if not analyze(source, mode_of(name)).ok]

    assert rejected == []


def test_every_construct_has_eight_golden_files() -> None:
    files: Counter[str] = Counter()
    for name, source in golden_programs().items():
        module = parse(source, mode_of(name))
        files.update({construct_of(declaration).name for declaration in module.declarations})

    assert {name: files[name] for name in CONSTRUCTS if files[name] < 8} == {}
