// What the precompiled headers are made for: a library and a program of the same flags as the rooms and the tests. It is not run.
int main() {
  return 0;
}
