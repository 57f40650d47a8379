"""The pretend GitHub Actions service: the other side of ``docs/spec/actions-service.md``, pretend jobs, a runner.

Start at :class:`runherd.simulator.simulator.Simulator`. Nothing is imported here, because the runner program
(:mod:`runherd.simulator.runner`) must start within milliseconds.
"""
