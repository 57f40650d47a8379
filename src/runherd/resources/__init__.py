"""Pure functions from a parent object to the children that it should have (``docs/spec/controllers.md`` 8 and 9).

Bodies are plain JSON data, ready to be created. They share what is equal in many of them (pod templates above all)
with each other and with the caches of this package: read them, send them, never change them.
"""
