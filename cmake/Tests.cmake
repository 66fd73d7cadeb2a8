# CTest: one cmocka program per test/c/test_*.c, the poll suite once per backend, and every public
# header alone, as C and as C++. A test that cannot run here exits with 77: skipped.

# --- Headers: each compiles alone, and twice, as C17 and (where there is a compiler) as C++17.
find_program(EAGAIN_CXX NAMES c++ g++ clang++)
file(GLOB_RECURSE public_headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/include
     ${PROJECT_SOURCE_DIR}/include/*.h)
# <eagain/ruby.h> needs Ruby's own headers; the extension's build includes it.
list(REMOVE_ITEM public_headers eagain/ruby.h)

add_test(NAME headers COMMAND
  ${PROJECT_SOURCE_DIR}/script/check-headers ${CMAKE_C_COMPILER} ${EAGAIN_CXX})

# --- The C example does what its first comment says, but for the silence.
add_executable(example_wait examples/wait.c)
target_link_libraries(example_wait PRIVATE eagain_static Threads::Threads)
add_test(NAME example_wait
         COMMAND sh -c "(echo one; sleep 0.2; echo two) | $<TARGET_FILE:example_wait>")
set_tests_properties(example_wait PROPERTIES PASS_REGULAR_EXPRESSION "one\ntwo\nend of file" TIMEOUT 20)

# --- Units.
if(PkgConfig_FOUND)
  pkg_check_modules(CMOCKA IMPORTED_TARGET cmocka)
endif()
if(NOT CMOCKA_FOUND)
  message(STATUS "cmocka not found (Debian: libcmocka-dev): the C tests are not built")
  return()
endif()

function(eagain_test_program name source)
  add_executable(${name} ${source})
  # The static library: the tests may reach what the shared one hides.
  target_include_directories(${name} PRIVATE src test/c)
  target_link_libraries(${name} PRIVATE eagain_static PkgConfig::CMOCKA Threads::Threads)
  target_compile_definitions(${name} PRIVATE _GNU_SOURCE)
  if(LIBURING_FOUND)
    target_compile_definitions(${name} PRIVATE EA_HAVE_LIBURING)
    target_link_libraries(${name} PRIVATE PkgConfig::LIBURING)
  endif()
endfunction()

# A test, and the same under valgrind (`ctest -C valgrind -L valgrind`).
find_program(EAGAIN_VALGRIND valgrind)
set(valgrind ${EAGAIN_VALGRIND} --quiet --error-exitcode=99 --fair-sched=yes --leak-check=full
    --show-leak-kinds=definite --errors-for-leak-kinds=definite)
function(eagain_test name)
  add_test(NAME ${name} COMMAND ${ARGN})
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 120)
  if(EAGAIN_VALGRIND AND NOT EAGAIN_SANITIZE)
    list(POP_FRONT ARGN program)
    add_test(NAME valgrind_${name} CONFIGURATIONS valgrind
             COMMAND ${valgrind} $<TARGET_FILE:${program}> ${ARGN})
    set_tests_properties(valgrind_${name} PROPERTIES
                         SKIP_RETURN_CODE 77 TIMEOUT 300 LABELS valgrind)
  endif()
endfunction()

file(GLOB test_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/test/c/test_*.c)
foreach(source ${test_sources})
  get_filename_component(name ${source} NAME_WE)
  eagain_test_program(${name} ${source})
  string(REPLACE test_ "" test_name ${name})
  eagain_test(${test_name} ${name})
endforeach()

if(EXISTS ${PROJECT_SOURCE_DIR}/test/c/poll_suite.c)
  eagain_test_program(test_poll test/c/poll_suite.c)
  # A backend that this build or this kernel lacks is skipped.
  foreach(backend epoll io_uring poll)
    eagain_test(poll_${backend} test_poll ${backend})
  endforeach()
endif()
