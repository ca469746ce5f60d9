"""The gate: policy, verdict, receipt, history and report."""
