"""4.4 and 5: any test of two hosts, run over the whole fleet in perfect matchings."""

from __future__ import annotations

from syntony.audit.check import Check, Section
from syntony.audit.result import Suspect


class PairTest(Check):
    """A test of two hosts passes for every pair that was drawn.

    Expected results: exit status 0 within the deadline and the value asked for. Hosts in failed
    pairs are tested again with partners known to be good; who fails then is named, within
    log₂ N + 2 rounds for a single bad host.
    """

    id = "be.conn.pairs"
    section = Section.CONNECTIVITY
    reads = ("$ the test given to `syntony audit pairs`",)
    meaning = "jobs with this host run as badly as the test did"
    remedy = "take it out of the pool; audit it: syntony audit run --hosts HOST"
    suspect = Suspect.HOST
