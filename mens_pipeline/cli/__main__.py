"""`python -m mens_pipeline.cli`."""

from mens_pipeline.cli.main import main

main()
