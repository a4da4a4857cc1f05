"""Fleet audit: checks whether hosts, links and collectives are fit for a long job, and reports
verdicts. Data is collected by `syntony.io.audit`; everything here is pure."""
