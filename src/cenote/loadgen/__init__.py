"""A load generator: asks a server over HTTP as many clients would, and measures what it answers.

It knows nothing of the engine, so it measures any server that speaks one of `dialects`.
"""
