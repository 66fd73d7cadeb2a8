/* rows/print_task.rb as plain C. */
#include "print.c"
