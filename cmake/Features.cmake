# What this system can do: -DEA_HAVE_<FUNCTION>. ext/eagain/extconf.rb asks the same questions.
include(CheckSymbolExists)
set(CMAKE_REQUIRED_DEFINITIONS -D_GNU_SOURCE)
foreach(question
        accept4=sys/socket.h epoll_pwait2=sys/epoll.h eventfd=sys/eventfd.h pipe2=unistd.h
        ppoll=poll.h preadv2=sys/uio.h)
  string(REPLACE "=" ";" question ${question})
  list(GET question 0 function)
  list(GET question 1 header)
  string(TOUPPER EA_HAVE_${function} feature)
  check_symbol_exists(${function} ${header} ${feature})
  if(${feature})
    list(APPEND EAGAIN_FEATURES ${feature})
  endif()
endforeach()
unset(CMAKE_REQUIRED_DEFINITIONS)
