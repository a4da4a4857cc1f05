"""Fleet audit: is the cluster right before the week-long job starts? Checks, verdicts, reports."""
