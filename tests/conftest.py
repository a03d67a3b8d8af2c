"""What holds for every test: a property is true or false, however busy the machine is that asks."""

from importlib.util import find_spec

if find_spec("hypothesis"):  # the lanes' environments have none
    from hypothesis import HealthCheck, settings

    settings.register_profile("rubricem", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("rubricem")
