# Prints what zsh would complete: complete.zsh FOLDER "heddle run --b". For pages_test.py: a zsh at a terminal of its own, in which each
# candidate is printed instead of shown.
zmodload zsh/zpty
zpty child zsh -f -i
child() { zpty -w child "$1" }

until_read() { # reads what the child prints up to a line that ends in $1
  local line
  REPLY=
  while zpty -r child line; do
    REPLY+=${line//$'\r'/}
    [[ $REPLY == *"$1"$'\n' ]] && return
  done
}

child 'PS1= RPS1= PS2= PS4=; stty -echo; unsetopt zle_bracketed_paste prompt_cr prompt_sp 2>/dev/null'
child "fpath=(${(q)1} \$fpath)"
child 'autoload -Uz compinit; compinit -u -D; setopt no_list_beep'
# Every candidate passes through compadd, which tells with -O those that match what is typed. Calls that only ask (-O, -A, -D) add none.
child 'compadd() {
  if [[ ${@[1,(i)(-|--)]} != *-(O|A|D)\ * ]]; then
    local -a candidates
    builtin compadd -O candidates "$@"
    (( $#candidates )) && print -rl -- "match: "${^candidates}
  fi
  builtin compadd "$@"
}'
child '_tell() { zle complete-word; print -r -- done: "telling"; zle send-break }; zle -N _tell; bindkey "^T" _tell'
child 'print -r -- done: "setting up"'
until_read 'done: setting up'
zpty -n -w child "$2"$'\C-t'
until_read 'done: telling'
print -r -- "$REPLY" | sed -n 's/^.*match: \(.*\)$/\1/p' | sort -u
zpty -d child
