"""C and C++ text in parts: what is a comment, what a literal, what code. Used by check_shape.py and rewrap_comments.py."""

import re

# In the order in which they are tried. A quote between digits separates them, and belongs to the number.
PART = re.compile(
    r"""(?P<line>//(?:[^\\\n]|\\.|\\\n)*)
      |(?P<block>/\*.*?(?:\*/|\Z))
      |(?P<raw>\b(?:u8|[uUL])?R"(?P<delimiter>[^()\\\s]{0,16})\(.*?\)(?P=delimiter)")
      |(?P<string>"(?:[^"\\\n]|\\.)*")
      |(?P<number>\b\d(?:'?[\w.])*)
      |(?P<char>'(?:[^'\\\n]|\\.)+')
      |(?P<word>[A-Za-z_]\w*)
    """,
    re.VERBOSE | re.DOTALL,
)


def comments(text):
    """(begin, end, "line" or "block") of each comment."""
    return [(found.start(), found.end(), found.lastgroup) for found in PART.finditer(text) if found.lastgroup in ("line", "block")]


def blank(text):
    return re.sub(r"[^\n]", " ", text)


def code_of(text):
    """The text with comments and what stands in literals blanked out: every line and column stays where it was."""

    def without(found):
        kind = found.lastgroup
        if kind in ("line", "block"):
            return blank(found[0])
        if kind in ("raw", "delimiter", "string", "char"):
            return '"' + blank(found[0][1:-1]) + '"'
        return found[0]

    return PART.sub(without, text)


def without_directives(code):
    """Code without the lines of the preprocessor, which may hold half a declaration or a macro's."""
    return re.sub(r"^[ \t]*#(?:[^\\\n]|\\.|\\\n)*", lambda found: blank(found[0]), code, flags=re.MULTILINE | re.DOTALL)
