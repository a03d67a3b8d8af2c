"""Judges judged: agreement, a held-out second judge with an alarm, calibration against labels, a probe for length."""
