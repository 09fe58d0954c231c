"""One module a format, each with ``read(source, overrides, model_named) -> Draft``.

``source`` is the file's text, ``overrides`` what ``--set`` lays over it, ``model_named`` whether
``--model`` makes resolving the file's own model needless. A reader raises InputError in one
sentence, executes nothing, and accounts for every key: understood, assumed or ignored.
"""
