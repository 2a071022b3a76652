#!/usr/bin/env python3
"""Brings comments of C and C++ into 100 columns. Code stays as it is: a file whose code would change is refused.

    rewrap_comments.py [FILE …]     files, or all that check_shape.py --comments looks at; prints what it could not bring into the width
    rewrap_comments.py --dry-run [FILE …]     the same, but writes nothing

Then run scripts/check_format.sh --fix, and both once more: where a comment has left a line, the formatter may join the line with the next one.
What quotes a source word for word has to follow: README.md has examples/hello.cpp. Run it when nobody else changes the sources.

* Only a paragraph that has a line which is too wide is wrapped. Items of lists are paragraphs, with the indentation of their text; so are the
  rows of tables (two spaces or more between words), with that of their last column.
* A comment behind code that makes the line too wide goes above the code, or, if the line begins with a }, into the block that it opens.
* NOLINT and clang-format stay, as do drawings and what stands between clang-format off and on. Rules of dashes become shorter.
"""

import pathlib
import re
import sys

sys.dont_write_bytecode = True
from check_shape import COMMENTED, WIDEST_COMMENT, files_below, wide_comments  # noqa: E402
from cpp_text import code_of, comments  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
GLUE = "\0"  # a space at which no line ends
FIXED = re.compile(r"NOLINT|clang-format|clang-tidy|[\u2500-\u257f]|://")
RULE = re.compile(r"^(?P<head>.*?)(?P<run>([-=*_])\3{7,})$")
ITEM = re.compile(r"(?:[-*+•]|\d{1,2}[.)]|\(?[a-z0-9]\)) +(?=\S)")
LABEL = re.compile(r"[A-Z]\w+:$")  # such as Errors:
NO_BEGINNING = re.compile(r"(?:[-*+•–]|\d{1,2}[.)]|\(?[a-z0-9]\))$|//|#")  # would look like an item or a directive
FARTHEST_COLUMN = 60  # of a table, to which its last column is wrapped


class Paragraph:
    def __init__(self, text, first, hang, words_at):
        self.lines = [text]
        self.first = first  # what the first line begins with
        self.hang = hang  # columns before the others
        self.words_at = words_at  # in the first line
        self.fixed = False


def last_column(text):
    """Where the last column of a table's row begins; None: it is no row. Two spaces behind a full stop are none of a table."""
    gaps = [gap for gap in re.finditer(r"(?<=\S) {2,}(?=\S)", text) if len(gap[0]) > 2 or text[gap.start() - 1] != "."]
    return gaps[-1].end() if gaps else None


def goes_on(paragraph, text, widest):
    """Whether the line, which stands where the paragraph's text does, is meant to follow it without a break."""
    before = paragraph.lines[-1]
    first_word = text.split()[0]
    if before.rstrip()[-1] in ".:;)" and LABEL.match(first_word):
        return False
    return before.rstrip()[-1] not in ".:;" or len(before) + 1 + len(first_word) > 0.8 * widest


def paragraphs(texts):
    found = []
    widest = max(map(len, texts))
    for text in texts:
        stripped = text.strip()
        lead = len(text) - len(text.lstrip())
        item = ITEM.match(stripped)
        column = last_column(text)
        if not stripped or FIXED.search(text) or RULE.match(stripped.removesuffix(f"{GLUE}*/")):
            found.append(Paragraph(text, "", 0, 0))
            found[-1].fixed = True
        elif item and column is None:
            at = lead + item.end()
            found.append(Paragraph(text, text[:at], at, at))
        elif column is not None and column <= FARTHEST_COLUMN:
            found.append(Paragraph(text, text[:column], column, column))
        elif column is not None:
            found.append(Paragraph(text, " " * lead, lead + 4, lead))
        elif found and not found[-1].fixed and found[-1].hang == lead and goes_on(found[-1], text, widest):
            found[-1].lines.append(text)
        else:
            found.append(Paragraph(text, " " * lead, lead, lead))
    return found


def words_of(paragraph):
    """The words; those between which no line may end are one, and so are those with several spaces between them."""
    text = " ".join([paragraph.lines[0][paragraph.words_at:].strip(), *map(str.strip, paragraph.lines[1:])])
    words = []
    for word in re.split(r"(?<! ) (?! )", text):
        if words and (NO_BEGINNING.match(word) or words[-1].endswith("\\")):
            words[-1] += " " + word
        else:
            words.append(word)
    return words


def wrapped(paragraph, room):
    lines, line = [], paragraph.first
    empty = True
    for word in words_of(paragraph):
        if not empty and len(line) + 1 + len(word) > room:
            lines.append(line)
            line, empty = " " * paragraph.hang, True
        line += word if empty else " " + word
        empty = False
    return [*lines, line]


def shorter_rule(text, room):
    """A rule that has four dashes at least, or else none, behind its words; anything else as it is."""
    end = f"{GLUE}*/" if text.endswith(f"{GLUE}*/") else ""
    rule = RULE.match(text.removesuffix(end))
    if not rule:
        return text
    least = len(rule["head"]) + 4 + len(end) if rule["head"].strip() else 0
    return (rule[0][:room - len(end)] if least <= room else rule["head"].rstrip()) + end


def reflowed(texts, room):
    """What stands behind the // of successive lines, in so many columns."""
    if all(len(text) <= room for text in texts):
        return texts
    result = []
    for paragraph in paragraphs(texts):
        text = paragraph.lines[0]
        if all(len(line) <= room for line in paragraph.lines):
            result += paragraph.lines
        elif paragraph.fixed:
            shorter = shorter_rule(text, room)
            result += [text] if shorter == text else reflowed([shorter], room)
        else:
            result += wrapped(paragraph, room)
    return result


def indentation(line):
    return line[:len(line) - len(line.lstrip())]


class Rewrapper:
    def __init__(self, text):
        self.lines = text.split("\n")
        self.out = []
        self.at = {}  # line: the comment that begins there and has nothing behind it, as (column, last line, kind)
        self.in_code = code_of(text).split("\n")
        self.off = False
        begins = [0]
        for line in self.lines:
            begins.append(begins[-1] + len(line) + 1)
        for begin, end, kind in comments(text):
            first = text.count("\n", 0, begin)
            last = first + text.count("\n", begin, end)
            whole = kind == "block" or last == first  # a // that goes on behind a backslash is left alone
            if whole and text[end:begins[last + 1] - 1].strip() == "" and not text.startswith("/**", begin):
                self.at[first] = (begin - begins[first], last, kind)

    def run(self):
        number = 0
        while number < len(self.lines):
            line = self.lines[number]
            if re.search(r"clang-format (on|off)", line):
                self.off = "clang-format off" in line
            if self.off or number not in self.at:
                self.out.append(line)
                number += 1
                continue
            column, last, kind = self.at[number]
            alone = not line[:column].strip()
            if kind == "line":
                number = self.lines_alone(number, column) if alone else self.line_behind(number, column)
            elif max(len(each) for each in self.lines[number:last + 1]) <= WIDEST_COMMENT:
                self.out += self.lines[number:last + 1]
                number = last + 1
            else:
                (self.block_alone if alone else self.block_behind)(number, column, last)
                number = last + 1
        return "\n".join(self.out)

    def same_column(self, number, column):
        """The line behind those from here that have nothing but a // in this column."""
        while number < len(self.lines) and self.at.get(number, (None,))[::2] == (column, "line") and not self.lines[number][:column].strip():
            number += 1
        return number

    def lines_alone(self, number, column):
        end = self.same_column(number, column)
        texts = [line[column + 2:] for line in self.lines[number:end]]
        begin = self.lines[number][:column] + "//"
        if any(text[:1] in ("/", "!") for text in texts):
            self.out += self.lines[number:end]
        else:
            self.out += [begin + text for text in reflowed(texts, WIDEST_COMMENT - len(begin))]
        return end

    def line_behind(self, number, column):
        end = self.same_column(number + 1, column)
        lines = self.lines[number:end]
        if all(len(line) <= WIDEST_COMMENT for line in lines) or any(FIXED.search(line[column:]) for line in lines):
            self.out.append(lines[0])
            return number + 1
        text = " ".join(line[column + 2:].strip() for line in lines)
        if self.move(number, column, lambda before: self.as_lines(before, text)):
            return end
        self.out += lines
        return end

    @staticmethod
    def as_lines(before, text):
        begin = before + "//"
        return [begin + line for line in reflowed([" " + text], WIDEST_COMMENT - len(begin))]

    @staticmethod
    def as_block(before, texts, star=True):
        """The lines of a block comment from what stands behind its /* and stars."""
        texts = [text.rstrip() for text in texts]
        own_line = texts[-1] == ""
        if own_line:
            texts.pop()
        else:
            texts[-1] += f"{GLUE}*/"
        lines = reflowed(texts, WIDEST_COMMENT - len(before) - 2)
        begins = ["/*"] + [" *" if star else "  "] * (len(lines) - 1)
        lines = [(before + begin + line.replace(GLUE, " ")).rstrip() for begin, line in zip(begins, lines)]
        return lines + [before + " */"] * own_line

    def block_texts(self, number, column, last):
        """What stands behind the /*, and in the following lines behind the star or below that; and whether there are stars."""
        lines = self.lines[number:last + 1]
        lines[-1] = lines[-1].rstrip().removesuffix("*/")
        star = all(line.strip()[:1] in ("*", "") for line in lines[1:])
        if star:
            rest = [line.strip()[1:] for line in lines[1:]]
        else:
            rest = [line[column + 2:] if not line[:column + 2].strip() else " " + line.strip() for line in lines[1:]]
        return [lines[0][column + 2:], *rest], star

    def block_alone(self, number, column, last):
        texts, star = self.block_texts(number, column, last)
        self.out += self.as_block(self.lines[number][:column], texts, star)

    def block_behind(self, number, column, last):
        text = " ".join(" ".join(self.block_texts(number, column, last)[0]).split())
        if FIXED.search(text) or not self.move(number, column, lambda before: self.as_block(before, [" " + text])):
            self.out += self.lines[number:last + 1]

    def move(self, number, column, comment):
        """Puts the code in front of the column out, and the comment, made for an indentation, above it. False: it cannot be moved."""
        code = self.lines[number][:column].rstrip()
        before = self.lines[number - 1] if number else ""
        if before.endswith("\\") or re.match(r"\s*#\s*(el|end|if)", code):
            return False
        if code.lstrip().startswith("}"):
            if not code.endswith("{"):
                return False
            self.out += [code, *comment(indentation(code) + "  ")]
            return True
        place = len(self.out)
        above = number - 1  # the formatter may have put what is assigned onto a line of its own
        while place and above >= 0 and re.search(r"=$|\w\{$", self.in_code[above].rstrip()) and self.out[place - 1] == self.lines[above]:
            place, above = place - 1, above - 1
        while place and "NOLINTNEXTLINE" in self.out[place - 1]:
            place -= 1
        begin = indentation(self.out[place]) if place < len(self.out) else indentation(code)
        self.out[place:place] = comment(begin)
        self.out.append(code)
        return True


def tokens(text):
    """The code alone; literals whole."""
    kept, at = [], 0
    for begin, end, _ in comments(text):
        kept.append(text[at:begin])
        at = end
    return " ".join([*kept, text[at:]]).split()


def rewrapped(text):
    result = Rewrapper(text).run()
    if tokens(result) != tokens(text):
        raise ValueError("its code would change")
    return result


def main(arguments):
    dry = "--dry-run" in arguments
    names = [argument for argument in arguments if argument != "--dry-run"]
    if any(name.startswith("-") for name in names):
        print(__doc__, file=sys.stderr)
        return 2
    changed = wide = 0
    refused = False
    for path in map(pathlib.Path, names or files_below(ROOT, COMMENTED)):
        text = path.read_text(encoding="utf-8")
        try:
            result = rewrapped(text)
        except ValueError as error:
            print(f"{path}: {error}; left as it is")
            result, refused = text, True
        for line, columns in wide_comments(result):
            print(f"{path}:{line}: still {columns} columns")
            wide += 1
        if result != text:
            changed += 1
            if not dry:
                path.write_text(result, encoding="utf-8")
    print(f"rewrap_comments: {changed} files {'would change' if dry else 'changed'}, {wide} lines still too wide")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
