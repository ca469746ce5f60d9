"""Short words for the results of programs, and helpers that run programs."""

from mens_pipeline.language.interpreter import CaseResult, Features, Limits, Outcome, run_tests

_WORDS = {Outcome.PASSED: "pass", Outcome.FAILED: "fail"}


def verdict(result: CaseResult) -> str:
    """`pass`, `fail`, `error:Kind` or `unsupported:reason`; a limit is an error, too."""
    if result.outcome in _WORDS:
        return _WORDS[result.outcome]
    return f"{'unsupported' if result.outcome is Outcome.UNSUPPORTED else 'error'}:{result.reason}"


def only_result(source: str, *, limits: Limits | None = None, features: Features | None = None) -> CaseResult:
    """Return the result of a program with one test."""
    report = run_tests(source, limits or Limits(), features=features or Features())
    assert report.diagnostics == ()
    (result,) = report.tests
    return result


def result_of_body(body: str, *, limits: Limits | None = None, features: Features | None = None) -> CaseResult:
    """Return the result of a test with these statements."""
    return only_result(f"@test fn t() {{\n{body}\n}}", limits=limits, features=features)
