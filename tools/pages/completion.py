"""Completions of the heddle command for bash, zsh and fish, from its help texts."""

from __future__ import annotations

import dataclasses
import re

from help_text import Option


@dataclasses.dataclass
class Command:
    name: str
    summary: str
    options: list[Option]
    words: dict[str, str] = dataclasses.field(default_factory=dict)  # what may stand without a dash, and what it means
    after: dict[str, list[str]] = dataclasses.field(default_factory=dict)  # what may follow a word or an option
    files: str = ""  # "program": a program and its arguments come then; "*.json": such files


def brief(text: str) -> str:
    """The first thought of a description, as one line of a menu."""
    first = re.split(r"[;:(]|, (?:also|as|not) ", text)[0].strip()
    return re.sub(r"\s+", " ", first).replace("…", "...")


def quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def values(command: Command, option: Option) -> list[str]:
    return [value for name in option.names for value in command.after.get(name, [])] or option.choices()


BASH_HEAD = """# Completion of the heddle command for bash. Made from its help texts.
_heddle_words() { # the words that may stand here
  COMPREPLY=()
  mapfile -t COMPREPLY < <(compgen -W "$1" -- "${COMP_WORDS[COMP_CWORD]}")
}

_heddle_value() { # at an option with a value: goes to that, which may stand behind a "=" (a word of its own)
  ((++i))
  [[ ${COMP_WORDS[i]} != = ]] || ((++i))
}

_heddle_files() { # files as bash completes them
  compopt -o default 2>/dev/null
  COMPREPLY=()
}

"""


def bash(commands: list[Command]) -> str:
    out = BASH_HEAD + "_heddle() {\n  local command=${COMP_WORDS[1]} before=${COMP_WORDS[COMP_CWORD-1]} i\n"
    out += "  [[ $before != = ]] || before=${COMP_WORDS[COMP_CWORD-2]}\n"
    out += "  if ((COMP_CWORD == 1)); then\n"
    out += f"    _heddle_words {quoted(' '.join([command.name for command in commands] + ['--help', '--version']))}\n    return\n  fi\n"
    out += "  case $command in\n"
    for command in commands:
        out += f"    {command.name})\n"
        with_value = [name for option in command.options if option.value for name in option.names]
        if command.files == "program":
            # The first word that is neither an option nor the value of one is the program.
            out += "      for ((i = 2; i < COMP_CWORD; ++i)); do\n        case ${COMP_WORDS[i]} in\n"
            out += f"          {' | '.join(with_value)}) _heddle_value ;;\n          -?*) [[ ${{COMP_WORDS[i]}} == -- ]] && break ;;\n          *) break ;;\n"
            out += "        esac\n      done\n      ((i < COMP_CWORD)) && { _heddle_files; return; }\n"
        out += "      case $before in\n"
        for option in command.options:
            if option.value:
                known = values(command, option)
                answer = f"_heddle_words {quoted(' '.join(known))}" if known else "_heddle_files" if option.takes_file() else "COMPREPLY=()"
                out += f"        {' | '.join(option.names)}) {answer} ;;\n"
        for word in command.words:
            if word in command.after:
                out += f"        {word}) _heddle_words {quoted(' '.join(command.after[word] + option_names(command)))} ;;\n"
        rest = f"_heddle_words {quoted(' '.join([*command.words, *option_names(command)]))}"
        if command.files:
            rest = f"if [[ ${{COMP_WORDS[COMP_CWORD]}} == -* ]]; then {rest}; else _heddle_files; fi"
        out += f"        *) {rest} ;;\n      esac\n      ;;\n"
    return out + "  esac\n}\ncomplete -F _heddle heddle\n"


def option_names(command: Command) -> list[str]:
    return [name for option in command.options for name in option.names]


def zsh_option(command: Command, option: Option) -> list[str]:
    text = brief(option.text).replace("[", "(").replace("]", ")").replace(":", " ")
    value = ""
    if option.value:
        known = values(command, option)
        action = f"({' '.join(known)})" if known else "_files" if option.takes_file() else ""
        value = f":{option.value.replace(':', ' ').replace('[', '(').replace(']', ')')}:{action}"
    return [quoted(f"*{name}[{text}]{value}") for name in option.names]


def zsh(commands: list[Command]) -> str:
    out = "#compdef heddle\n# Completion of the heddle command for zsh. Made from its help texts.\n_heddle() {\n"
    out += "  local curcontext=$curcontext state line\n  typeset -A opt_args\n"
    out += "  _arguments -C '(- *)'{-h,--help}'[show the commands]' '(- *)--version[show the version]' '1:command:->command' '*::argument:->argument'\n"
    out += "  case $state in\n    command)\n      local -a commands=(\n"
    out += "".join(f"        {quoted(command.name + ':' + brief(command.summary))}\n" for command in commands)
    out += "      )\n      _describe command commands\n      ;;\n    argument)\n      case $words[1] in\n"
    for command in commands:
        specs = [spec for option in command.options for spec in zsh_option(command, option)]
        following = ""
        if command.words:
            following = zsh_words(command)
            specs.append("'*:word:->word'")
        elif command.files == "program":
            specs += ["'1:program:_command_names -e'", "'*::argument:_normal'"]
        elif command.files:
            specs.append(f"'*:file:_files -g \"{command.files}\"'")
        stop = "-S " if command.files == "program" else ""
        joined = " \\\n            ".join(specs)
        out += f"        {command.name})\n          _arguments {stop}\\\n            {joined}\n{following}          ;;\n"
    return out + "      esac\n      ;;\n  esac\n}\n_heddle \"$@\"\n"


def zsh_words(command: Command) -> str:
    out = "          if [[ $state == word ]]; then\n            case $words[CURRENT-1] in\n"
    for word in command.words:
        if word in command.after:
            out += f"              {word}) compadd -- {' '.join(command.after[word])} ;;\n"
    out += "              *)\n                local -a known=(\n"
    out += "".join(f"                  {quoted(word + ':' + brief(text))}\n" for word, text in command.words.items())
    return out + "                )\n                _describe word known ;;\n            esac\n          fi\n"


FISH_HEAD = """# Completion of the heddle command for fish. Made from its help texts.
function __heddle_at # COMMAND: it is that command, and its program, if it starts one, has not come
    set -l words (commandline -opc)
    test (count $words) -ge 2; and test $words[2] = $argv[1]; and not __heddle_program
end

function __heddle_program # whether the program has come that heddle run starts
    set -l words (commandline -opc) (commandline -ct)
    contains -- $words[2] run oshrun; or return 1
    set -l i 3
    while test $i -lt (count $words)
        switch $words[$i]
            case VALUES
                set i (math $i + 2)
            case --
                return 0
            case '-*'
                set i (math $i + 1)
            case '*'
                return 0
        end
    end
    return 1
end

complete -c heddle -f
complete -c heddle -n '__heddle_program' -a '(__fish_complete_subcommand --fcs-skip=2 VALUES)'
"""


def fish(commands: list[Command]) -> str:
    with_value = [name for command in commands if command.files == "program" for option in command.options if option.value for name in option.names]
    out = FISH_HEAD.replace("VALUES", " ".join(dict.fromkeys(with_value)))
    first = "-n 'test (count (commandline -opc)) -eq 1'"
    out += f"complete -c heddle {first} -s h -l help -d 'show the commands'\n"
    for command in commands:
        out += f"complete -c heddle {first} -a {command.name} -d {quoted(brief(command.summary))}\n"
    for command in commands:
        here = f"-n '__heddle_at {command.name}'"
        for option in command.options:
            flags = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" if len(name) == 2 else f"-o {name[1:]}" for name in option.names)
            known = values(command, option)
            value = ""
            if option.value:
                value = f" -x -a {quoted(' '.join(known))}" if known else " -r -F" if option.takes_file() else " -x"
            out += f"complete -c heddle {here} {flags}{value} -d {quoted(brief(option.text))}\n"
        for word, text in command.words.items():
            out += f"complete -c heddle {here} -a {word} -d {quoted(brief(text))}\n"
            if word in command.after:
                out += f"complete -c heddle -n '__heddle_at {command.name}; and __fish_seen_subcommand_from {word}' -a {quoted(' '.join(command.after[word]))}\n"
        if command.files == "program":
            out += f"complete -c heddle {here} -a '(__fish_complete_command)'\n"
        elif command.files:
            out += f"complete -c heddle {here} -a '(__fish_complete_suffix {command.files[1:]})'\n"
    return out
