"""A launch script resolved without being run.

``parse`` makes commands of the text, ``words`` expands variables and quotes, ``arith`` and
``conditions`` evaluate ``$(( ))`` and ``[ ]``, ``resolve`` walks the script and returns the
commands it would start, with every word's line. No process is started and no file is opened.
"""
