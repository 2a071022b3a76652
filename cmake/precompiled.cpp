// The program that the tests' precompiled header is made for: a target of the same kind and flags as theirs. It is not run.
int main() {
  return 0;
}
