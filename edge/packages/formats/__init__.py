"""What kinds of packages there are: a table with one entry each, and the readers behind the entries.

Nothing here loads native code, and everything is bounded: a package is judged before anything else sees a byte of it.
"""
