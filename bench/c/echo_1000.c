/* rows/echo_1000.rb as plain C. */
enum { CLIENTS = 1000, MESSAGES = 120, REQUEST = 512, RESPONSE = 512 };

#include "echo.h"

int main(int argc, char **argv) {
    return echo_run(argc, argv);
}
