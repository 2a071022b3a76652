#!/usr/bin/env python3
"""Checks that the API fuzzer calls every function of the public headers, but for those that are listed here with the reason.

    api_table_test.py HEADER API_FUZZ     exit 0: it does; 1: what is missing, or is called and not declared
"""

import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import check_exports  # noqa: E402

LEFT_OUT = {"heddle_context_abort": "it ends the process"}


def main(arguments):
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    declared = check_exports.declared(pathlib.Path(arguments[0]))
    listed = subprocess.run([arguments[1], "--list"], check=True, capture_output=True, text=True).stdout.split()
    wrong = [f"{name} is declared and not in the table of the fuzzer" for name in sorted(declared - set(listed) - set(LEFT_OUT))]
    wrong += [f"{name} is in the table and not declared" for name in sorted(set(listed) - declared)]
    wrong += [f"{name} is left out ({LEFT_OUT[name]}) and in the table, or not declared"
              for name in sorted(LEFT_OUT) if name in listed or name not in declared]
    wrong += [f"{name} is in the table twice" for name in sorted({name for name in listed if listed.count(name) > 1})]
    print("\n".join(wrong + [f"api_table_test: {len(declared)} declared, {len(listed)} in the table"]))
    return 1 if wrong or not declared else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
