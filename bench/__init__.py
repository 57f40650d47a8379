"""What measures; never part of the tests.

``python -m bench [name ...]`` runs the modules of this package that have a function ``run() -> Result`` (all of them,
or those named), prints each result as a table and writes it to ``bench/results/<name>.json``. A new measurement is a
new module; modules whose name begins with an underscore are helpers.
"""
