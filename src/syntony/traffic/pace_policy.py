"""When flows are paced, and how much, as an operator sets it."""

from __future__ import annotations

import msgspec

from syntony.model import MS, US, S
from syntony.model.config_values import Multiple, Natural, Positive, Share


class PacePolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[pacing.policy]``: when flows are paced, and how much.

    Rates are those of frames on the wire.
    """

    queue_ns: Natural = 50 * US
    """Queueing delay from which a link counts as congested (`MovePolicy.queue_ns`)."""
    full: Share = 0.6
    """… if its known flows fill at least this share of it: otherwise the queue is on another link.
    Senders that wait for each other fill less of one link when another holds them back."""
    after_ns: Natural = 2 * S
    """… and has done so for this long: placement acts first, and may find another path."""
    lapse_ns: Natural = 1 * S
    """A shorter time without congestion does not end it: jobs pause between steps."""
    min_flows: Positive = 2
    """Minimum flows on a link: a flow that is alone on it is not paced."""
    target: Share = 0.97
    """Share of a link's rate given to all its flows: a queue then drains by 3 % of line rate."""
    cut: Share = 0.95
    """Factor of this share while packets still wait: unknown flows send, too."""
    climb: Share = 0.01
    """Share of the link's rate added at each step without a queue, up to just below the share at
    which there was one…"""
    retry_ns: Natural = 30 * S
    """… within this time."""
    drain_ns: Natural = 1 * S
    """The queue present when a link is first paced must have drained by then."""
    most: Multiple = 4.0
    """Maximum share of a link's rate given to its flows together while they leave some unused: jobs
    pause in turns."""
    spare: Share = 0.33
    """If more than this share of the link's rate is unused, more is given…"""
    spare_least: Share = 0.04
    """… until no more than this is unused. From then on packets may wait…"""
    bear: Share = 0.5
    """… for this share of the delay when pacing began: bursts wait now and then, and a link that is
    not full drains them."""
    bear_more: Share = 0.25
    """… or this share where more than the link's rate is given: otherwise the queue returns."""
    load_ns: Positive = 3 * S
    """Time constant of the load used for this: one report covers only part of a step."""
    floor: Share = 0.5
    """Minimum share of a link's rate: below it known flows yield no more to unknown ones."""
    settle_ns: Natural = 1_200 * MS
    """A delay counts only if reported this long after the last change of rates: the second that it
    summarizes, and the time until a rate takes effect."""
    stale_ns: Natural = 5 * S
    """Older delays are ignored."""
    headroom: Multiple = 2.0
    """A flow below its rate keeps this many times its use: senders that wait for each other at
    every step must not lose to those that they wait for…"""
    headroom_above: Multiple = 1.2
    """… but this many times where there are flows of a lower class, which get the rest."""
    binding: Share = 0.9
    """A flow that sends this share of its rate or more would send more without it."""
    forget: Share = 0.8
    """Decay per second of a flow's earlier demand."""
    step: Share = 0.01
    """Minimum relative increase of a rate; decreases take effect at once."""
    release: Share = 0.4
    """If a link's flows send less than this share of its budget…"""
    hold_down_ns: Natural = 5 * S
    """… for this long, pacing on it ends; twice as long each time it has to begin again."""
    hold_down_max_ns: Natural = 120 * S
    """Upper limit of `hold_down_ns`."""
    decay_ns: Positive = 120 * S
    """This long without pacing halves the hold-down."""
