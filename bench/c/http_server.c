/* rows/http_server.rb as plain C: the same bytes there and back. They are counted, not looked at. */
#define REQUEST_TEXT "GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n"
#define RESPONSE_TEXT                                                                              \
    "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 14\r\n\r\nHello, world!\n"
enum {
    CLIENTS = 100,
    MESSAGES = 600,
    REQUEST = sizeof REQUEST_TEXT - 1,
    RESPONSE = sizeof RESPONSE_TEXT - 1
};

#include "echo.h"

int main(int argc, char **argv) {
    return echo_run(argc, argv);
}
