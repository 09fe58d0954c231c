"""The one exception that is the user's to mend."""


class InputError(ValueError):
    """Input that cannot be used: the command line prints it as one sentence and exits with 2.

    The text names the file and the key, says what was found and what was expected, and offers
    the nearest valid choice where there is one.
    """


def nearest(found: str, choices: "list[str] | tuple[str, ...]") -> str:
    """A clause such as ``; did you mean 'v6e'?``, empty when nothing is close."""
    import difflib

    close = difflib.get_close_matches(found, choices, n=1, cutoff=0.5)
    return f"; did you mean '{close[0]}'?" if close else ""
