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


def slipped(key: str, meant: str, wrong_letter: bool = True) -> bool:
    """Whether one slip of the keyboard turns a key into another.

    A letter lost or doubled, two swapped, or (``wrong_letter``) one wrong. Digits are no slip
    (``beta1``, ``beta2``), and names below eight letters have near neighbours (``pp_size``).
    """
    short, long = sorted((key, meant), key=len)
    if len(short) < 7 or len(long) < 8 or len(long) - len(short) > 1 or key == meant:
        return False
    at = next((i for i, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    if not all(c.isalpha() or c in "_-" for c in short[at : at + 1] + long[at]):
        return False
    if len(short) < len(long):
        return short[at:] == long[at + 1 :]
    swapped = short[at : at + 2] == long[at : at + 2][::-1]
    if swapped and short[at + 2 :] == long[at + 2 :]:
        return True
    return wrong_letter and short[at + 1 :] == long[at + 1 :]
