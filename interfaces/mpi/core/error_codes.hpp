// Error classes and codes: those of the standard, and those that the program adds.
#pragma once

#include <string>

#include "mpi/core/arguments.hpp"

namespace heddle::mpi {

// A predefined class is its own code. MPI_ERR_UNKNOWN: no such code.
int class_of(int code);
// The name and text of a class of the standard, such as "MPI_ERR_RANK" and "no such rank in the
// group"; null: it is none.
const char* name_of_class(int code);
const char* text_of_class(int code);
// The text for MPI_Error_string. May throw std::bad_alloc.
std::string text_of(int code);
// The value of MPI_LASTUSEDCODE. Its place does not change.
int* last_used_code();

// The error that report() handed to the program last in this thread, and its text. MPI_Error_string
// adds this text to that of the class, so that a program which only prints the string says what was
// wrong.
void remember_reported(Call call, int code, const char* text);

// Reports to the error handler of MPI_FILE_NULL, which is that of all files, as there are none.
[[gnu::cold]] int report_file(Call call, int code);

}  // namespace heddle::mpi
