"""One module a format, each with ``read(source, context) -> Draft``.

``source`` is the file's text, ``context`` what ``--set`` and ``--model`` say and the files named
beside it. A reader raises InputError in one sentence, executes nothing, opens no file, and
accounts for every key: understood, assumed or ignored.
"""
