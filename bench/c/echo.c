/* rows/echo.rb as plain C. */
enum { CLIENTS = 30, MESSAGES = 4000, REQUEST = 512, RESPONSE = 512 };

#include "echo.h"

int main(int argc, char **argv) {
    return echo_run(argc, argv);
}
