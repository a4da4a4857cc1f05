"""`syntony.clock.fit.fit_window` in native code: the same numbers in a tenth of the time."""

from __future__ import annotations

import functools
import math
import os
from typing import Any

import numpy as np

from syntony.clock import envelope, mixture, purity
from syntony.clock import fit as reference
from syntony.clock.envelope import EnvelopeLine
from syntony.clock.fit import Prior, WindowFit
from syntony.clock.samples import Clouds
from syntony.io._library import ffi, library, pointer_to


def fit_window(clouds: Clouds, prior: Prior | None = None) -> WindowFit:
    """See `syntony.clock.fit.fit_window`, whose results it equals up to rounding.

    Raises:
        ValueError: points that are not finite, or all of one direction.
        MemoryError: no room for six doubles a point.
    """
    t, y = np.ascontiguousarray(clouds.t), np.ascontiguousarray(clouds.y)
    classes = clouds.purity.astype(np.uint8)
    points = ffi.new(
        "struct syn_fit_points *",
        {
            "t": pointer_to(t, "double"),
            "y": pointer_to(y, "double"),
            "purity": pointer_to(classes, "uint8_t"),
            "forward": clouds.forward,
            "count": len(t),
            "span_ns": clouds.span_ns,
        },
    )
    found = ffi.new("struct syn_fit *")
    slope, sigma = (0.0, math.inf) if prior is None else prior
    error = library().syn_fit_window(points, slope, sigma, _options(), found)
    if error:
        message = f"window of {len(t)} points, {clouds.forward} forward: {os.strerror(error)}"
        raise MemoryError(message) if error == 12 else ValueError(message)
    return WindowFit(
        line=EnvelopeLine(found.slope, found.forward_ns, found.reverse_ns),
        theta_var=found.theta_var,
        slope_var=found.slope_var,
        covariance=found.covariance,
        noise_ns=found.noise_ns,
        clustered=bool(found.piled),
        floor_confirmed=bool(found.sharp),
        cluster_gap=found.apart,
    )


@functools.cache
def _options() -> Any:
    """The reference's own constants, so that each has one home."""
    return ffi.new(
        "struct syn_fit_options *",
        {
            "max_drift": envelope.MAX_DRIFT_PPB * 1e-9,
            "soft_range": envelope.SOFT_RANGE_PPB * 1e-9,
            "hard_steps": envelope.HARD_STEPS,
            "soft_steps": envelope.SOFT_STEPS,
            "depths": list(reference.START_DEPTHS),
            "floor_probes": reference.FLOOR_PROBES,
            "depth_spread": reference.DEPTH_SPREAD,
            "soft_sigmas": reference.SOFT_SIGMAS,
            "pile_share": reference.CLUSTER_SIGMA_SHARE,
            "same_start_ns": reference.SAME_START_NS,
            "min_pile": reference.MIN_CLUSTER,
            "sharp_pile": reference.CONFIRMED_CLUSTER,
            "sharp_contrast": reference.CONFIRMED_CONTRAST,
            "min_sigma_ns": reference.MIN_SIGMA_NS,
            "stamp_correlation": reference.STAMP_CORRELATION,
            "thin_pile": reference.THIN_CLUSTER,
            "min_noise_ns": mixture.MIN_NOISE_NS,
            "max_noise_ns": mixture.MAX_NOISE_NS,
            "start_noise_ns": mixture.START_NOISE_NS,
            "early_ns": mixture.EARLY_NS,
            "early_share": mixture.EARLY_SHARE,
            "settled": mixture.SETTLED,
            "min_pure": mixture.MIN_PURE,
            "prior_pure": mixture.PRIOR_PURE,
            "rounds": mixture.ROUNDS,
            "classes": purity.CLASSES,
        },
    )
